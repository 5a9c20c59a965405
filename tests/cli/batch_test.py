#!/usr/bin/env python3
"""Property: deepinfer batch answers every line once, whatever is wrong with others and however often the run is ended.

usage: batch_test.py PROGRAM
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = pathlib.Path(sys.argv[1])


def start(source, results, *more):
    return subprocess.Popen([PROGRAM, "batch", "-i", source, "-o", results, *more], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def run(source, results, *more):
    process = start(source, results, *more)
    _, stderr = process.communicate(timeout=300)
    return process.returncode, stderr.decode()


def read(results):
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    answers = {line["custom_id"]: line for line in lines}
    assert len(lines) == len(answers), "a custom_id has two results"
    return answers


def without_time(answers):
    for line in answers.values():
        if line["response"]:
            line["response"]["body"].pop("created", None)
            line["response"]["body"].get("usage", {}).clear()  # how much came from the cache
    return answers


def stories(count, tokens):
    lines = []
    for i in range(count):
        lines.append({"prompt": f"Once upon a time there were {i} bears", "max_tokens": tokens, "temperature": 1, "seed": i})
    return "".join(json.dumps(line) + "\n" for line in lines)


class Batch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.source = pathlib.Path(folder.name) / "in.jsonl"
        self.results = pathlib.Path(folder.name) / "out.jsonl"
        self.expected = pathlib.Path(folder.name) / "expected.jsonl"

    def test_all_protocols_and_bad_lines(self):
        user = [{"role": "user", "content": "Hello"}]
        requests = [
            ("chat", "/v1/chat/completions", {"messages": user, "max_tokens": 12, "temperature": 0, "logprobs": True, "top_logprobs": 2}),
            ("two", "/v1/completions", {"prompt": ["Once upon a time", "The cat"], "max_tokens": 6, "n": 2, "seed": 5}),
            ("responses", "/v1/responses", {"input": "Hello", "max_output_tokens": 10}),
            ("messages", "/v1/messages", {"messages": user, "max_tokens": 10}),
            ("hot", "/v1/chat/completions", {"messages": user, "temperature": 9}),
            ("long", "/v1/completions", {"prompt": "a b " * 20000}),
            ("stop", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 30, "temperature": 0, "stop": [" little"]}),
        ]
        lines = [json.dumps({"custom_id": i, "method": "POST", "url": u, "body": b}) for i, u, b in requests]
        lines += ["", "not json", json.dumps({"custom_id": "chat", "prompt": "x"})]
        lines += ['{"custom_id": "e", "url": "/v1/embeddings", "body": {}}']
        self.source.write_text("\r\n".join(lines))  # and no line end behind the last
        code, stderr = run(self.source, self.results)
        self.assertEqual(code, 0, stderr)
        self.assertIn("tokens/s", stderr)
        answers = read(self.results)
        self.assertEqual(len(answers), len(lines) - 1)
        body = {name: line["response"]["body"] for name, line in answers.items() if line["response"]}
        status = {name: line["response"]["status_code"] for name, line in answers.items() if line["response"]}
        self.assertEqual(body["chat"]["choices"][0]["message"]["content"], "Hello! How can I help you today?")
        self.assertGreater(len(body["chat"]["choices"][0]["logprobs"]["content"]), 3)
        self.assertEqual([c["index"] for c in body["two"]["choices"]], [0, 1, 2, 3])
        self.assertEqual(body["two"]["usage"]["completion_tokens"], 24)
        self.assertEqual(body["responses"]["object"], "response")
        self.assertEqual(body["messages"]["type"], "message")
        self.assertEqual(body["stop"]["choices"][0]["text"], ", there was a")
        self.assertEqual(body["stop"]["choices"][0]["finish_reason"], "stop")
        self.assertEqual(status["hot"], 400)
        self.assertIn("temperature", body["hot"]["error"]["message"])
        self.assertEqual(status["long"], 400)
        errors = {name: line["error"]["code"] for name, line in answers.items() if line["error"]}
        self.assertEqual(errors, {"line-9": "invalid_json", "line-10": "duplicate_custom_id", "e": "invalid_url"})
        before = self.results.read_bytes()
        code, stderr = run(self.source, self.results)  # nothing is left to do
        self.assertEqual((code, self.results.read_bytes()), (0, before), stderr)

    def end_and_go_on(self, how, code):
        self.source.write_text(stories(40, 24))
        self.assertEqual(run(self.source, self.expected)[0], 0)
        expected = without_time(read(self.expected))
        for wanted in (1, 12):  # results to wait for
            process = start(self.source, self.results, "--in-flight", "4")
            while process.poll() is None and (not self.results.exists() or self.results.read_bytes().count(b"\n") < wanted):
                time.sleep(0.01)
            process.send_signal(how)
            process.communicate()
            self.assertEqual(process.returncode, code)
            done = read(self.results)
            self.assertTrue(wanted <= len(done) < 40, len(done))
        with self.results.open("a") as file:
            file.write('{"id":"batch_req_12", "custom')  # as a crash of the machine may leave it
        kept = self.results.read_bytes().rsplit(b"\n", 1)[0]
        code, stderr = run(self.source, self.results)
        self.assertEqual(code, 0, stderr)
        self.assertTrue(self.results.read_bytes().startswith(kept))  # answered requests did not run again
        self.assertEqual(without_time(read(self.results)), expected)

    def test_killed_and_continued(self):
        self.end_and_go_on(signal.SIGKILL, -signal.SIGKILL)

    def test_interrupted_and_continued(self):
        self.end_and_go_on(signal.SIGINT, 130)

    def test_constraints_of_request_bodies(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}
        chat = {"messages": [{"role": "user", "content": "x"}], "thinking": {"type": "disabled"}, "max_tokens": 60}
        bodies = {
            "format": {**chat, "response_format": {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}},
            "compact": {**chat, "structured_outputs": {"json": schema, "disable_any_whitespace": True}},
            "regex": {**chat, "guided_regex": "[0-9]{3}"},
            "bad": {**chat, "guided_json": {"type": "string", "pattern": "(?=x)"}},
        }
        lines = [{"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body} for name, body in bodies.items()]
        self.source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.assertEqual(run(self.source, self.results)[0], 0)
        answers = read(self.results)
        content = lambda name: answers[name]["response"]["body"]["choices"][0]["message"]["content"]
        self.assertIn(json.loads(content("format")), ({"a": 1}, {"a": 2}))
        self.assertIn(content("compact"), ('{"a":1}', '{"a":2}'))
        self.assertRegex(content("regex"), "^[0-9]{3}$")
        self.assertEqual(answers["bad"]["response"]["status_code"], 400)
        for part in ("/guided_json: #", "pattern"):
            self.assertIn(part, json.dumps(answers["bad"]["response"]["body"]))

    def test_what_it_refuses(self):
        self.source.write_text(stories(1, 4))
        self.results.write_text("something else\n")
        code, stderr = run(self.source, self.results)
        self.assertEqual(code, 1)
        self.assertIn("out.jsonl", stderr)
        self.assertEqual(self.results.read_text(), "something else\n")
        self.results.unlink()
        self.assertEqual(run(self.source, self.results)[0], 0)
        self.source.write_text(stories(1, 5))  # another request under the same name
        code, stderr = run(self.source, self.results)
        self.assertEqual(code, 1)
        self.assertIn("line-1", stderr)
        self.assertEqual(run(self.source.parent / "absent", self.results)[0], 1)
        if os.path.exists("/dev/full"):
            self.assertEqual(run(self.source, "/dev/full")[0], 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=1)
