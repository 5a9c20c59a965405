#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The two web pages in headless Chromium against `deepinfer serve` with the bundled model.

  browser_test.py PROGRAM [--screenshots FOLDER]

Shows: an answer streams into the page and ends with its figures; thinking is folded; markup in a message stays text; Escape
stops an answer; errors are told; the keyboard alone is enough; the charts move; and the browser reports no script error
or policy violation. Leaves chat.png, chat-dark.png and status.png. Skips (exit code 77) where playwright or Chromium is missing.
"""
import argparse
import contextlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    print("SKIPPED: playwright is not installed")
    sys.exit(77)

WAIT_MS = 60_000  # for a machine with other things to do


@contextlib.contextmanager
def serving(program):
    process = subprocess.Popen([program, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        match = re.search(r"http://[0-9.:]+", line)
        assert match, f"no address in the first line: {line!r}"
        yield match.group(0)
    finally:
        process.terminate()
        assert process.wait(timeout=60) == 0, "the server did not end well"


def answer_to(page, text):
    page.fill("#prompt", text)
    page.keyboard.press("Enter")
    expect(page.locator("#announce")).to_have_text(re.compile("^Answer complete"), timeout=WAIT_MS)


def check_chat(page, base, folder):
    page.goto(base + "/")
    expect(page.locator("#model option")).not_to_have_count(0)
    # By keyboard: the message field has the focus.
    page.fill("#max-tokens", "48")
    page.locator("#prompt").focus()
    page.keyboard.type("Tell me a story <b>about</b> a bird.")
    page.keyboard.press("Enter")
    expect(page.locator("#announce")).to_have_text(re.compile("^Answer complete"), timeout=WAIT_MS)
    question, answer = page.locator(".message.user .body"), page.locator(".message.assistant")
    expect(question).to_have_text("Tell me a story <b>about</b> a bird.")
    assert question.locator("b").count() == 0, "markup of a message became markup of the page"
    figures = answer.locator(".figures").inner_text()
    assert re.search(r"\d+ tokens", figures) and "prompt" in figures and "cached" in figures, figures
    assert answer.inner_text().strip()
    page.screenshot(path=folder / "chat.png")

    page.uncheck("#thinking")
    answer_to(page, "And then?")
    assert page.locator(".message.assistant").count() == 2
    assert page.locator(".message.assistant").nth(1).locator("details").count() == 0

    page.fill("#max-tokens", "4000")
    page.fill("#prompt", "A very long story, please.")
    page.keyboard.press("Enter")
    expect(page.locator("#stop-button")).to_be_enabled()
    page.keyboard.press("Escape")
    expect(page.locator("#send")).to_be_enabled(timeout=WAIT_MS)

    page.fill("#temperature", "77")
    page.fill("#prompt", "Hello")
    page.keyboard.press("Enter")
    expect(page.locator("#announce")).to_have_text(re.compile("temperature"), timeout=WAIT_MS)
    page.fill("#temperature", "")

    page.emulate_media(color_scheme="dark")
    page.screenshot(path=folder / "chat-dark.png")
    page.emulate_media(color_scheme="light")
    page.click("#new-chat")
    expect(page.locator(".message")).to_have_count(0)


# What the bundled model seldom does, played to the page: thinking, a tool call with its result, an answer that breaks off.
def check_played_answers(page, base, folder):
    def event(delta, finish=None):
        return "data: " + json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) + "\n\n"
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": '{"city": "Oslo"}'}}
    bodies = [event({"reasoning_content": "<i>hm</i>"}) + event({"tool_calls": [call]}) + event({}, "tool_calls"),
              event({"content": "<script>alert(1)</script> Noon.\n```\n12:00\n```\n"}) + event({}, "stop") + "data: [DONE]\n\n",
              event({"content": "Half an ans"})]
    requests = []

    def play(route):
        requests.append(json.loads(route.request.post_data))
        route.fulfill(status=200, content_type="text/event-stream", body=bodies[len(requests) - 1])

    page.goto(base + "/")
    page.route("**/v1/chat/completions", play)
    page.fill("#tools", '[{"type": "function", "function": {"name": "get_time"}}]')
    page.fill("#prompt", "What time is it in Oslo?")
    page.keyboard.press("Enter")
    result = page.locator(".tool form input")
    expect(result).to_be_focused(timeout=WAIT_MS)
    expect(page.locator(".tool h3")).to_have_text("get_time()")
    thinking = page.locator(".message.assistant details")
    assert thinking.get_attribute("open") is None, "thinking is not folded"
    expect(thinking.locator(".body")).to_have_text("<i>hm</i>")
    page.keyboard.type("12:00")
    page.keyboard.press("Enter")
    answer = page.locator(".message.assistant").nth(1)
    expect(answer.locator("pre")).to_have_text("12:00\n", timeout=WAIT_MS)
    assert answer.locator("script").count() == 0
    sent = requests[1]["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool"] and sent[2]["tool_call_id"] == "call_1", sent
    page.screenshot(path=folder / "chat-tools.png")
    page.fill("#prompt", "And in Rome?")
    page.keyboard.press("Enter")
    expect(page.locator("#announce")).to_have_text(re.compile("broke off"), timeout=WAIT_MS)
    page.unroute("**/v1/chat/completions")
    page.fill("#tools", "")


def check_status(page, base, folder):
    page.goto(base + "/status")
    expect(page.locator("#state")).to_have_text("live", timeout=WAIT_MS)
    charts = page.locator("figure svg")
    expect(charts).to_have_count(6)
    page.evaluate("""async () => {
      const model = (await (await fetch('v1/models')).json()).data[0].id;
      const body = JSON.stringify({model, prompt: 'Once upon a time', max_tokens: 300, temperature: 1});
      const ask = () => fetch('v1/completions', {method: 'POST', headers: {'Content-Type': 'application/json'}, body});
      (async () => { for (let i = 0; i < 10; ++i) await ask(); })();
    }""")
    expect(charts.nth(1)).to_have_attribute("aria-label", re.compile(r"answers [1-9]"), timeout=WAIT_MS)
    for i in range(charts.count()):
        label = charts.nth(i).get_attribute("aria-label")
        assert not re.search(r" -( |%|,|$)", label) or "cache" in label or "Rows" in label, f"a chart without figures: {label}"
    page.screenshot(path=folder / "status.png")
    page.click("#pause")
    expect(page.locator("#state")).to_have_text("paused")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--screenshots", type=pathlib.Path, default=pathlib.Path("."))
    args = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("SKIPPED: chromium is not installed")
        sys.exit(77)
    args.screenshots.mkdir(parents=True, exist_ok=True)
    problems = []
    with serving(args.program) as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        page.on("pageerror", lambda error: problems.append(str(error)))
        # A refused request is shown as a console error by the browser itself; that is not one of the page.
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" and "Failed to load resource" not in m.text else None)
        check_chat(page, base, args.screenshots)
        check_played_answers(page, base, args.screenshots)
        check_status(page, base, args.screenshots)
        browser.close()
    assert not problems, problems
    print("both pages work")


if __name__ == "__main__":
    main()
