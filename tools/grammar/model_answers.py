#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Structured answers of the bundled model, validated by the jsonschema package.

  tools/grammar/model_answers.py [--deepinfer build/bin/deepinfer] [--check build/bin/grammar_check]
                                 [--kind formats|tools] [--requests 200] [--max-tokens 2048] [--keep DIRECTORY]

--requests requests over 20 schemas, temperature 1: response formats of Chat Completions, or strict tools of Messages. The
schemas are four each of five classes of the MaskBench sample (nesting, arrays, patterns, numbers, $ref): in the order of
SHA-256(name), those that have the class's keyword, were not taken for an earlier class and are not refused. A format's
answer that ended by itself must be valid; one that was cut by max_tokens must be the beginning of a valid document, which
is shown by finishing it with grammar_check and validating that. A tool's call must be read by the recipe's parser without
complaint, with valid arguments. Exit code 1 where that does not hold, or more than a tenth is cut.
"""
import argparse
import collections
import hashlib
import json
import lzma
import pathlib
import subprocess
import sys
import tempfile

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "tests/data/json_schema/maskbench_sample.jsonl.xz"
PER_CLASS = 4
MARKER = "</\uff5cDSML\uff5c"


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


def candidates(kind):
    """(class, name, schema) in the order of the rule; `object` alone for tools."""
    records = [json.loads(line) for line in lzma.open(SAMPLE, "rt")]
    records.sort(key=lambda record: hashlib.sha256(record["name"].encode()).digest())
    for record in records:
        schema = json.loads(record["schema"])
        if kind == "tools" and (not isinstance(schema, dict) or schema.get("type") != "object"):
            continue
        words = keywords(schema, set())
        for name, has in CLASSES.items():
            if has(schema, words):
                yield name, record["name"], schema


def request(kind, schema, seed, max_tokens, top_p=1):
    text = {"role": "user", "content": "Make up an example, as JSON."}
    if kind == "formats":
        body = {"messages": [text], "thinking": {"type": "disabled"}, "temperature": 1, "top_p": top_p, "seed": seed,
                "max_tokens": max_tokens, "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
        return "/v1/chat/completions", body
    tool = {"name": "submit", "strict": True, "input_schema": schema}
    body = {"messages": [text], "thinking": {"type": "disabled"}, "temperature": 1, "top_p": top_p, "max_tokens": max_tokens,
            "tools": [tool], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    return "/v1/messages", body


def run(options, lines, directory):
    """Bodies of the answers by custom_id, and status codes."""
    source, target = directory / "in.jsonl", directory / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    target.unlink(missing_ok=True)
    command = [options.deepinfer, "batch", "--input", source, "--output", target, "--in-flight", "16", "--kv-memory", "1GiB"]
    subprocess.run(command, check=True, stderr=None if options.verbose else subprocess.DEVNULL)
    answers = {}
    for line in target.read_text().splitlines():
        record = json.loads(line)
        response = record["response"] or {"status_code": 0, "body": record["error"]}
        answers[record["custom_id"]] = (response["status_code"], response["body"])
    return answers


def choose(options, directory):
    """20 schemas that are not refused, and the names of those that are."""
    names = []
    for _, name, schema in candidates(options.kind):
        # What fits well into the context of the bundled model.
        if name not in names and len(json.dumps(schema)) <= 8000:
            names.append(name)
    chosen, refused, taken, asked, answers = [], [], collections.Counter(), 0, {}
    pool = [entry for entry in candidates(options.kind) if entry[1] in set(names)]
    schemas = {name: schema for _, name, schema in pool}
    while True:
        for kind, name, schema in pool:
            if taken[kind] == PER_CLASS or name in refused or any(name == other for _, other, _ in chosen):
                continue
            if name not in answers:
                break
            if answers[name][0] != 200:
                refused.append(name)
                continue
            taken[kind] += 1
            chosen.append((kind, name, schema))
        else:
            return chosen, refused
        lines = []
        for name in names[asked:asked + 40]:
            url, body = request(options.kind, schemas[name], 0, 1)
            lines.append({"custom_id": name, "method": "POST", "url": url, "body": body})
        asked += 40
        answers.update(run(options, lines, directory))
        chosen, taken = [], collections.Counter()


def validator(schema):
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def finish(options, cut):
    """For (schema, text): a document that begins with the text, or None."""
    questions = "".join(json.dumps({"schema": json.dumps(schema), "finish": text}) + "\n" for schema, text in cut)
    answers = subprocess.run([options.check], input=questions, text=True, check=True, capture_output=True).stdout
    return [json.loads(line).get("finished") for line in answers.splitlines()]


def judge_format(body, check, state):
    choice = body["choices"][0]
    text = choice["message"]["content"] or ""
    if choice["finish_reason"] == "length":
        return "cut", text
    if choice["finish_reason"] != "stop":
        return "wrong", f"finish_reason {choice['finish_reason']}: {text}"
    try:
        errors = [error.message for error in check.iter_errors(json.loads(text))]
    except ValueError as error:
        errors = [str(error)]
    return ("wrong", f"{errors[0]}: {text}") if errors else ("valid", text)


def strings(value):
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from strings(item)


def judge_call(body, check, state):
    if body.get("malformed_tool_calls"):
        if body["stop_reason"] == "max_tokens":
            return "cut", ""
        return "wrong", f"malformed: {body['malformed_tool_calls']}"
    if body["stop_reason"] == "max_tokens":
        return "cut", ""
    calls = [part for part in body["content"] if part["type"] == "tool_use"]
    if body["stop_reason"] != "tool_use" or len(calls) != 1 or len(body["content"]) != 1:
        return "wrong", f"no single call: {body}"
    arguments = calls[0]["input"]
    if any(MARKER in text for text in strings(arguments)):
        return "wrong", f"the closing marker within {arguments}"
    errors = [error.message for error in check.iter_errors(arguments)]
    return ("wrong", f"{errors[0]}: {arguments}") if errors else ("valid", json.dumps(arguments))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deepinfer", default=ROOT / "build/bin/deepinfer")
    parser.add_argument("--check", default=ROOT / "build/bin/grammar_check")
    parser.add_argument("--kind", choices=["formats", "tools"], default="formats")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--max-tokens", type=int, default=2048)
    parser.add_argument("--top-p", type=float, default=1)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.keep or pathlib.Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        chosen, refused = choose(options, directory)
        lines, checks, schemas = [], {}, {}
        for i in range(options.requests):
            kind, name, schema = chosen[i % len(chosen)]
            url, body = request(options.kind, schema, i, options.max_tokens, options.top_p)
            key = f"{i}"
            lines.append({"custom_id": key, "method": "POST", "url": url, "body": body})
            checks[key], schemas[key] = validator(schema), (kind, name, schema)
        answers = run(options, lines, directory)
    counts, cut, wrong, by_schema = collections.Counter(), [], [], collections.defaultdict(collections.Counter)
    for key, (status, body) in sorted(answers.items(), key=lambda item: int(item[0])):
        judge = judge_format if options.kind == "formats" else judge_call
        verdict, what = judge(body, checks[key], None) if status == 200 else ("wrong", f"status {status}: {body}")
        counts[verdict] += 1
        by_schema[schemas[key][:2]][verdict] += 1
        if verdict == "cut":
            cut.append((key, what))
        elif verdict == "wrong":
            wrong.append(f"{schemas[key][1]}: {what}")
    if options.kind == "formats" and cut:
        for (key, text), whole in zip(cut, finish(options, [(schemas[key][2], text) for key, text in cut])):
            if whole is None or not whole.startswith(text) or not checks[key].is_valid(json.loads(whole)):
                wrong.append(f"{schemas[key][1]}: cut, and not the beginning of a valid document: {text[-200:]} -> {str(whole)[-200:]}")
    for (kind, name), verdicts in by_schema.items():
        print(f"{kind:10} {name:50} {dict(verdicts)}")
    for line in wrong:
        print("WRONG", line[:600])
    print(f"{options.kind}: {len(answers)} answers over {len(chosen)} schemas ({len(refused)} refused on the way): "
          f"{counts['valid']} valid, {counts['cut']} cut by length, {len(wrong)} wrong")
    sys.exit(1 if wrong or len(answers) != options.requests or counts["cut"] * 10 >= options.requests else 0)


if __name__ == "__main__":
    main()
