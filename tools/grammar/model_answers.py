#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Structured answers of the bundled model through the running server, validated by the jsonschema package.

  tools/grammar/model_answers.py [--kind formats|tools] [--form bounded|closed|as-it-is] [--requests 200] [--max-tokens 2048]

Starts `deepinfer serve` with the bundled model and sends the requests, 24 at a time, at temperature 1 and top_p 1, each
with its own seed: response formats of Chat Completions, or strict tools of Messages that must be called, any or by name
in turn. An interrupted run goes on where it was: answers are kept in --results (default: build/answers/).

The 20 schemas are four each of five classes of the MaskBench sample (nesting, arrays, patterns, numbers, $ref). The rule
looks at schemas alone: in the order of SHA-256(name), each is taken for the first class in that list whose keyword it has
and that still lacks one, if it has at most 8,000 bytes and the server does not refuse it. (Tools: if its type is object.)

--form says what the requests ask for beside the schema, with fields of structured_outputs (docs/grammar.md):
  as-it-is  nothing
  closed    disable_additional_properties: objects that declare members and say nothing of others get no others, which is
            what OpenAI's strict mode demands of every schema
  bounded   that, and default_max_length 100, default_max_items 10: strings and arrays that the schema leaves open end there
Answers are judged by the schema as it stands in the sample in every form.

An answer that ended by itself must be valid, formats included, and without a repeated key. One that was cut by max_tokens
must say so and be the beginning of a valid document: grammar_check proposes how to go on, jsonschema has the verdict.
A call must be read without complaint, with valid arguments and no closing marker in them. Exit code 1 where that does not
hold, or where more than a tenth is cut.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import http.client
import json
import lzma
import os
import pathlib
import re
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests/data/json_schema/maskbench_sample.jsonl.xz"
PACKAGES = "jsonschema[format-nongpl]==4.26.0"
PER_CLASS = 4
MARKER = "</\uff5cDSML\uff5c"
PROMPT = "Make up an example, as JSON."
CLOSED = {"disable_additional_properties": True}
FORMS = {"as-it-is": {}, "closed": CLOSED, "bounded": {**CLOSED, "default_max_length": 100, "default_max_items": 10}}


def enter_environment(build):
    """Goes on in a virtual environment that has the validator and its format checkers."""
    folder = build / "venv-answers"
    if pathlib.Path(sys.prefix).resolve() == folder.resolve():
        return
    if not (folder / "packages").exists() or (folder / "packages").read_text() != PACKAGES:
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", PACKAGES], check=True)
        (folder / "packages").write_text(PACKAGES)
    os.execv(folder / "bin/python", [folder / "bin/python", __file__, *sys.argv[1:]])


# --- schemas ---


def depth(schema):
    """Objects within objects."""
    if isinstance(schema, dict):
        inner = max((depth(value) for value in schema.values()), default=0)
        return inner + ("properties" in schema)
    return max((depth(value) for value in schema), default=0) if isinstance(schema, list) else 0


def keywords(schema, found):
    if isinstance(schema, dict):
        found.update(schema)
    for value in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        keywords(value, found)
    return found


CLASSES = {
    "nesting": lambda schema, words: depth(schema) >= 3,
    "arrays": lambda schema, words: "items" in words,
    "patterns": lambda schema, words: "pattern" in words,
    "numbers": lambda schema, words: bool(words & {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "$ref": lambda schema, words: "$ref" in words,
}


def choose(options, ask):
    """[(class, name, schema)] of the rule, and the names of those that the server refused on the way."""
    records = [json.loads(line) for line in lzma.open(SAMPLE, "rt")]
    records.sort(key=lambda record: hashlib.sha256(record["name"].encode()).digest())
    chosen, refused, taken = [], [], collections.Counter()
    for record in records:
        schema = json.loads(record["schema"])
        if len(record["schema"]) > 8000 or (options.kind == "tools" and not (isinstance(schema, dict) and schema.get("type") == "object")):
            continue
        words = keywords(schema, set())
        place = next((name for name, has in CLASSES.items() if taken[name] < PER_CLASS and has(schema, words)), None)
        if place is None:
            continue
        if ask(*request(options, schema, 0, 1))[0] != 200:
            refused.append(record["name"])
            continue
        taken[place] += 1
        chosen.append((place, record["name"], schema))
        if len(chosen) == PER_CLASS * len(CLASSES):
            return chosen, refused
    sys.exit("the sample has too few schemas for the rule")


# --- requests ---


def request(options, schema, number, max_tokens):
    body = {
        "model": "bundled",
        "messages": [{"role": "user", "content": PROMPT}],
        "thinking": {"type": "disabled"},
        "temperature": 1,
        "top_p": options.top_p,
        "seed": number,
        "max_tokens": max_tokens,
    }
    body["structured_outputs"] = {**FORMS[options.form], "disable_any_whitespace": options.compact}
    if options.kind == "formats":
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return "/v1/chat/completions", body
    choice = {"type": "any"} if number % 2 == 0 else {"type": "tool", "name": "submit"}
    body["tools"] = [{"name": "submit", "strict": True, "input_schema": schema}]
    body["tool_choice"] = {**choice, "disable_parallel_tool_use": True}
    return "/v1/messages", body


class Server:
    def __init__(self, options):
        command = [
            options.deepinfer,
            "serve",
            "--port",
            "0",
            "--served-model-name",
            "bundled",
            "--requests-running-max",
            str(options.parallel),
            "--kv-memory-bytes",
            str(1 << 30),
            "--log-file",
            os.devnull,
            *options.serve.split(),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r":(\d+)\s*$", line)
        if not found:
            sys.exit(f"the server did not start: {line}")
        self.port = int(found.group(1))

    def ask(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read(), parse_float=exact)
        finally:
            connection.close()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def run(options):
    """Chosen schemas, names refused, and (status, body) by number. What was answered before is read from the file."""
    settings = {
        "kind": options.kind,
        "form": FORMS[options.form],
        "compact": options.compact,
        "max_tokens": options.max_tokens,
        "top_p": options.top_p,
        "serve": options.serve,
        "prompt": PROMPT,
    }
    name = "-".join(
        [
            options.kind,
            options.form,
            *(["compact"] if options.compact else []),
            str(options.max_tokens),
            *([f"top_p{options.top_p}"] if options.top_p != 1 else []),
            *([re.sub(r"[^a-z0-9]+", "_", options.serve)] if options.serve else []),
        ]
    )
    path = options.results or options.build / "answers" / (name + ".jsonl")
    path.parent.mkdir(parents=True, exist_ok=True)
    server = Server(options)
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        if not lines:
            chosen, refused = choose(options, server.ask)
            lines = [{"settings": settings, "chosen": chosen, "refused": refused}]
            path.write_text(json.dumps(lines[0]) + "\n")
        elif lines[0]["settings"] != settings:
            sys.exit(f"{path} has answers with other settings: {lines[0]['settings']}")
        chosen, refused = lines[0]["chosen"], lines[0]["refused"]
        answers = {line["number"]: (line["status"], line["body"]) for line in lines[1:]}
        missing = [number for number in range(options.requests) if number not in answers]
        with path.open("a") as file, concurrent.futures.ThreadPoolExecutor(options.parallel) as pool:
            asked = {
                pool.submit(server.ask, *request(options, chosen[number % len(chosen)][2], number, options.max_tokens)): number
                for number in missing
            }
            for future in concurrent.futures.as_completed(asked):
                number, (status, body) = asked[future], future.result()
                answers[number] = (status, body)
                file.write(json.dumps({"number": number, "status": status, "body": body}) + "\n")
                file.flush()
                if len(answers) % 20 == 0:
                    print(f"{len(answers)} of {options.requests} answered", file=sys.stderr, flush=True)
    finally:
        server.stop()
    return chosen, refused, {number: answers[number] for number in range(options.requests)}


# --- verdicts ---


def without_repeats(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)


def exact(text):
    """1.0 is an integer, of any length; Python's floats end at 1e308."""
    whole, _, fraction = text.partition(".")
    return int(whole) if fraction and not fraction.strip("0") else float(text)


def parse(text):
    return json.loads(text, object_pairs_hook=without_repeats, parse_float=exact)


def error_of(validator, text):
    try:
        return next((error.message for error in validator.iter_errors(parse(text))), None)
    except ValueError as error:
        return str(error)


def judge_format(status, body, validator):
    """(valid, cut or wrong; text)"""
    if status != 200:
        return "wrong", f"status {status}: {body}"
    choice = body["choices"][0]
    text = choice["message"]["content"] or ""
    if choice["finish_reason"] == "length":
        return "cut", text
    error = error_of(validator, text) if choice["finish_reason"] == "stop" else f"finish_reason {choice['finish_reason']}"
    return ("wrong", f"{error}: {text}") if error else ("valid", text)


def strings(value):
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(item)


def judge_call(status, body, validator):
    if status != 200:
        return "wrong", f"status {status}: {body}"
    if body["stop_reason"] == "max_tokens":
        parts = body.get("malformed_tool_calls") or [{"raw": ""}]
        return "cut", parts[-1]["raw"]
    if body.get("malformed_tool_calls"):
        return "wrong", f"malformed: {body['malformed_tool_calls']}"
    calls = [part for part in body["content"] if part["type"] == "tool_use"]
    if body["stop_reason"] != "tool_use" or len(calls) != 1 or len(body["content"]) != 1 or calls[0]["name"] != "submit":
        return "wrong", f"no single call: {body}"
    arguments = calls[0]["input"]
    if any(MARKER in text for text in strings(arguments)):
        return "wrong", f"the closing marker within {arguments}"
    # Numbers came through the body's own reading: written again, they read the same.
    error = error_of(validator, json.dumps(arguments))
    return ("wrong", f"{error}: {arguments}") if error else ("valid", json.dumps(arguments))


def where_cut(text):
    """What was being written when the tokens ran out: for telling why an answer did not end."""
    raw = text.rfind('string="true">')
    if raw > text.rfind(MARKER) and len(text) - raw >= 200:
        return "a string of 200 characters or more"
    inside, begin = False, 0
    for found in re.finditer(r'\\.|"', text, re.DOTALL):
        if found.group() == '"':
            inside, begin = not inside, found.end()
    if inside and len(text) - begin >= 200:
        return "a string of 200 characters or more"
    if re.search(r"[-+.0-9eE]{40,}$", text):
        return "a number of 40 digits or more"
    if re.search(r"\s{40,}$", text):
        return "blanks"
    return "members and elements without end"


def with_ends(schema, characters):
    """The same, but texts that must match a pattern somewhere end at a length, which leads to it."""
    if isinstance(schema, list):
        return [with_ends(item, characters) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: with_ends(value, characters) for key, value in schema.items()}
    if isinstance(schema.get("pattern"), str) and "maxLength" not in schema:
        inner["maxLength"] = characters
    return inner


def finish(options, cut):
    """For [(schema, text)]: for each a document that begins with the text, or None."""

    def ask(questions):
        lines = "".join(json.dumps({"schema": json.dumps(schema), "finish": text}) + "\n" for schema, text in questions)
        answers = subprocess.run([options.check], input=lines, text=True, check=True, capture_output=True).stdout
        return [json.loads(line).get("finished") for line in answers.split("\n") if line]

    documents = ask(cut)
    for characters in (lambda text: 300, lambda text: len(text) + 200):
        missing = [i for i, document in enumerate(documents) if document is None]
        for i, document in zip(missing, ask([(with_ends(cut[i][0], characters(cut[i][1])), cut[i][1]) for i in missing])):
            documents[i] = document
    return documents


def report(options, chosen, refused, answers):
    import jsonschema

    def validator_of(schema):
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        return kind(schema, format_checker=kind.FORMAT_CHECKER)

    validators = [validator_of(schema) for _, _, schema in chosen]
    judge = judge_format if options.kind == "formats" else judge_call
    counts, causes, wrong, cut = collections.Counter(), collections.Counter(), [], []
    by_schema = collections.defaultdict(collections.Counter)
    for number, (status, body) in answers.items():
        place = number % len(chosen)
        verdict, what = judge(status, body, validators[place])
        counts[verdict] += 1
        by_schema[place][verdict] += 1
        if verdict == "cut":
            causes[where_cut(what)] += 1
            cut.append((place, what))
        elif verdict == "wrong":
            wrong.append(f"{chosen[place][1]}: {what}")
    if options.kind == "formats" and cut:
        for (place, text), whole in zip(cut, finish(options, [(chosen[place][2], text) for place, text in cut])):
            if whole is None or not whole.startswith(text) or error_of(validators[place], whole):
                wrong.append(f"{chosen[place][1]}: cut, and not the beginning of a valid document: {text[-200:]} -> {str(whole)[-200:]}")
    for place in sorted(by_schema):
        print(f"{chosen[place][0]:10} {chosen[place][1]:50} {dict(by_schema[place])}")
    for line in wrong:
        print("WRONG", line[:600])
    for cause, count in causes.most_common():
        print(f"cut within {cause}: {count}")
    print(
        f"{options.kind}, {options.form}: {len(answers)} answers over {len(chosen)} schemas ({len(refused)} refused): "
        f"{counts['valid']} valid, {counts['cut']} cut by length, {len(wrong)} wrong"
    )
    return 1 if wrong or counts["cut"] * 10 > len(answers) else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder")
    parser.add_argument("--deepinfer", type=pathlib.Path, help="default: BUILD/bin/deepinfer")
    parser.add_argument("--check", type=pathlib.Path, help="default: BUILD/bin/grammar_check")
    parser.add_argument("--kind", choices=["formats", "tools"], default="formats")
    parser.add_argument("--form", choices=list(FORMS), default="bounded")
    parser.add_argument("--compact", action="store_true", help="without blanks (disable_any_whitespace)")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=2048)
    parser.add_argument("--top-p", type=float, default=1)
    parser.add_argument("--parallel", type=int, default=24, help="requests at once")
    parser.add_argument("--serve", default="", help="further flags of deepinfer serve")
    parser.add_argument("--results", type=pathlib.Path, help="file of the answers")
    options = parser.parse_args()
    options.deepinfer = options.deepinfer or options.build / "bin/deepinfer"
    options.check = options.check or options.build / "bin/grammar_check"
    enter_environment(options.build)
    sys.set_int_max_str_digits(0)
    sys.exit(report(options, *run(options)))


if __name__ == "__main__":
    main()
