#!/usr/bin/env python3
"""The work of maskbench.cc with llguidance (PyPI) on the same file, tokenizer and clock (CPU time of the thread).

    peers.py TOKENIZER_JSON SCHEMAS.jsonl.xz [--every N]

Needs: pip install llguidance==1.9.1 numpy
"""
import argparse
import json
import lzma
import time

import llguidance
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask


def now():
    return time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) * 1e6


def quantiles(name, values):
    values.sort()
    at = lambda q: values[min(len(values) - 1, int(q * len(values)))]
    print(f"{name}: n {len(values)} mean {sum(values) / len(values):.1f} p50 {at(.5):.1f} p90 {at(.9):.1f} "
          f"p99 {at(.99):.1f} p99.9 {at(.999):.1f} max {values[-1]:.1f} us")


def run_test(tokenizer, compiled, mask, test, mask_us):
    matcher = compiled.deep_copy()
    accepted = True
    for token in tokenizer.tokenize_str(test["data"]):
        start = now()
        fill_next_token_bitmask(matcher, mask, 0)
        ok = (int(mask[0, token // 32]) >> (token % 32)) & 1 != 0
        if ok:
            matcher.consume_token(token)
        mask_us.append(now() - start)
        if not ok:
            accepted = False
            break
    return accepted == test["valid"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("schemas")
    parser.add_argument("--every", type=int, default=1)
    args = parser.parse_args()
    tokenizer = llguidance.LLTokenizer(open(args.tokenizer).read())
    mask = allocate_token_bitmask(1, tokenizer.vocab_size)
    lines = lzma.open(args.schemas, "rt").read().splitlines()[:: args.every]
    compile_us, mask_us, outcomes = [], [], {"pass": 0, "refused": 0, "wrong": 0}
    for line in lines:
        entry = json.loads(line)
        start = now()
        compiled = llguidance.LLMatcher(tokenizer, json.dumps({"grammars": [{"json_schema": json.loads(entry["schema"])}]}))
        elapsed = now() - start
        if compiled.is_error():
            outcomes["refused"] += 1
            continue
        compile_us.append(elapsed)
        fine = all([run_test(tokenizer, compiled, mask, test, mask_us) for test in entry["tests"]])
        outcomes["pass" if fine else "wrong"] += 1
    print("llguidance", llguidance.__version__ if hasattr(llguidance, "__version__") else "", len(lines), "schemas", outcomes)
    quantiles("compile", compile_us)
    quantiles("mask", mask_us)


if __name__ == "__main__":
    main()
