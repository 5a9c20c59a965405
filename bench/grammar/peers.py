#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The work of maskbench.cc by another engine: reads schemas as JSON lines, writes one result as a JSON line for each.

    peers.py ENGINE TOKENIZER_JSON < schemas.jsonl     ENGINE: llguidance, xgrammar, xgrammar-default

Same tokens, order of work, clock (CPU time of the process) and meaning of "pass" as maskbench.cc: a valid instance must be
accepted token by token and be complete at its end, an invalid one must not. xgrammar is run in its compliant mode (blanks
anywhere, further keys and elements where the schema allows them); xgrammar-default is what it does when not told.
run.py starts this in a virtual environment of its own.
"""
import json
import sys
import time

import numpy


def now():
    return time.clock_gettime(time.CLOCK_PROCESS_CPUTIME_ID) * 1e6


class LlGuidance:
    def __init__(self, path):
        import llguidance
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
        self.llguidance, self.fill = llguidance, fill_next_token_bitmask
        self.tokenizer = llguidance.LLTokenizer(open(path).read())
        self.mask = allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema):
        grammar = json.dumps({"grammars": [{"json_schema": json.loads(schema)}]})
        compiled = self.llguidance.LLMatcher(self.tokenizer, grammar)
        if compiled.is_error():
            raise ValueError(compiled.get_error())
        return compiled

    def matcher(self, compiled):
        return compiled.deep_copy()

    def fill_mask(self, matcher):
        self.fill(matcher, self.mask, 0)

    def accept(self, matcher, token):
        matcher.consume_token(token)

    def is_complete(self, matcher):
        return matcher.is_accepting()


class XGrammar:
    def __init__(self, path, compliant):
        import xgrammar
        from transformers import PreTrainedTokenizerFast
        self.xgrammar = xgrammar
        self.options = {"any_whitespace": True, "strict_mode": False} if compliant else {}
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=path)
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, stop_token_ids=[1])
        self.mask = numpy.zeros((1, (info.vocab_size + 31) // 32), dtype=numpy.int32)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, **self.options)

    def matcher(self, compiled):
        return self.xgrammar.GrammarMatcher(compiled)

    def fill_mask(self, matcher):
        # False: everything is allowed, and the mask may be left as it was.
        if not matcher.fill_next_token_bitmask(self.mask):
            self.mask.fill(-1)

    def accept(self, matcher, token):
        if not matcher.accept_token(token):
            raise ValueError(f"token {token} is in the mask and not accepted")

    def is_complete(self, matcher):
        self.fill_mask(matcher)
        return int(self.mask[0, 0]) >> 1 & 1 != 0


def run_test(engine, compiled, tokens, mask_us):
    matcher = engine.matcher(compiled)
    for token in tokens:
        start = now()
        engine.fill_mask(matcher)
        ok = (int(engine.mask[0, token // 32]) >> (token % 32)) & 1 != 0
        if ok:
            engine.accept(matcher, token)
        mask_us.append(round(now() - start, 1))
        if not ok:
            return False
    return engine.is_complete(matcher)


def run_schema(engine, tokenizer, entry):
    tests = [(tokenizer.tokenize_str(test["data"]), test["valid"]) for test in entry["tests"]]
    result = {"name": entry["name"], "outcome": "pass", "compile_us": 0, "tokens": sum(len(t) for t, _ in tests), "mask_us": []}
    start = now()
    try:
        compiled = engine.compile(entry["schema"])
    except Exception as error:
        return result | {"outcome": "refused", "message": str(error)[:300]}
    result["compile_us"] = round(now() - start, 1)
    for tokens, valid in tests:
        try:
            accepted = run_test(engine, compiled, tokens, result["mask_us"])
        except Exception as error:
            return result | {"outcome": "error", "message": str(error)[:300]}
        if accepted != valid and result["outcome"] != "wrong accept":
            result["outcome"] = "wrong reject" if valid else "wrong accept"
    return result


def main():
    name, path = sys.argv[1:3]
    peer = LlGuidance(path)
    engine = peer if name == "llguidance" else XGrammar(path, compliant=name != "xgrammar-default")
    print(json.dumps({"ready": name}), flush=True)
    for line in sys.stdin:
        print(json.dumps(run_schema(engine, peer.tokenizer, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
