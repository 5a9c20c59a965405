#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Chat request of 20 turns with tools from bytes to token ids, beside the peer deepseek-recipe (PyPI): same body,
same ids, same run.

  cmake --preset bench && cmake --build build --target recipe_bench
  bench/recipe/run.py [--build build] [--tokenizer TOKENIZER_JSON] [--rounds 5]

The tokenizer is build/data/v41/tokenizer.json (tools/make_v41_tokenizer.py makes it) where it is there, else the bundled one.
Rounds take turns, so that noise of the machine falls on both; figures are medians over the rounds.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEER = "deepseek-recipe==0.2.0"


def make_body(turns):
    rng = random.Random(20)
    words = "the tide at harbour rises slowly while boats wait and gulls circle above old stone walls 12 345 hours".split()

    def text(n):
        return " ".join(rng.choice(words) for _ in range(n)) + "."

    tools = [{"type": "function", "function": {
        "name": f"tool_{i}", "description": text(20),
        "parameters": {"type": "object", "properties": {name: {"type": "string", "description": text(8)}
                                                        for name in ("place", "when", "unit")}}}} for i in range(6)]
    messages = [{"role": "system", "content": text(200)}]
    for i in range(turns):
        messages.append({"role": "user", "content": text(40)})
        call = {"id": f"c{i}", "type": "function", "function": {
            "name": f"tool_{i % 6}", "arguments": json.dumps({"place": text(3), "when": i, "unit": ["m", "ft"]})}}
        messages.append({"role": "assistant", "content": "", "reasoning_content": text(60), "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{i}", "content": text(80)})
        messages.append({"role": "assistant", "content": text(50), "reasoning_content": text(30)})
    messages.append({"role": "user", "content": text(10)})
    return json.dumps({"model": "DeepSeek-V4.1-Flash", "messages": messages, "tools": tools})


def measure_peer(tokenizer, body):
    """Runs inside the virtual environment; prints one JSON line."""
    import deepseek_recipe as r
    tokens = r.SpecialTokens(image="<｜deepseek_image｜>")
    options = r.ConversionOptions().with_special_tokens(tokens)
    encoding = r.DeepseekV41Encoding().with_special_tokens(tokens).with_tokenizer(r.Tokenizer.from_file(tokenizer))
    text = pathlib.Path(body).read_text(encoding="utf-8")
    times = {"parse_us": [], "encode_us": []}
    for _ in range(5):
        start = time.perf_counter()
        conversation = r.ChatCompletionRequest(text).convert(options).conversation
        parsed = time.perf_counter()
        ids = encoding.encode(conversation)
        times["encode_us"].append((time.perf_counter() - parsed) * 1e6)
        times["parse_us"].append((parsed - start) * 1e6)
    print(json.dumps({name: statistics.median(values) for name, values in times.items()} | {"ids": ids}))


def run(command):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        measure_peer(*arguments.peer)
        return
    tokenizer = arguments.tokenizer or arguments.build / "data/v41/tokenizer.json"
    if not tokenizer.exists():
        tokenizer = ROOT / "models/deepseek-v41-tiny/tokenizer.json"
    python = ROOT / ".venv-recipe/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", ROOT / ".venv-recipe"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEER], check=True)
    body = arguments.build / "recipe_bench_body.json"
    body.write_text(make_body(20), encoding="utf-8")
    ours, peers = [], []
    for _ in range(arguments.rounds):
        ours.append(run([arguments.build / "bin/recipe_bench", tokenizer, body, "30"]))
        peers.append(run([python, __file__, "--peer", tokenizer, body]))
    assert ours[0]["ids"] == peers[0]["ids"], "the ids differ"

    def median(records, *names):
        return statistics.median(sum(record[name] for name in names) for record in records)

    total = median(ours, "parse_us", "render_us", "encode_us")
    again = median(ours, "parse_us", "render_us", "encode_again_us")
    peer = median(peers, "parse_us", "encode_us")
    print(f"{ours[0]['body_bytes']} bytes, {ours[0]['tokens']} tokens, ids equal, tokenizer {tokenizer}")
    print(f"parse {median(ours, 'parse_us'):.0f} us, render {median(ours, 'render_us'):.0f} us, "
          f"encode {median(ours, 'encode_us'):.0f} us, texts remembered {median(ours, 'encode_again_us'):.0f} us")
    print(f"bytes to ids: {total:.0f} us, with texts remembered {again:.0f} us; {PEER} {peer:.0f} us: "
          f"{peer / total:.1f}x, {peer / again:.1f}x")


if __name__ == "__main__":
    main()
