#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes seeds for fuzz/grammar_fuzz.cc into a folder and prints their paths: one constraint of each kind, and walks.

    make_grammar_seeds.py FOLDER
"""
import pathlib
import random
import sys

OBJECT = '{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a"]}'
# The number is the kind in MakeConstraint.
CONSTRAINTS = [
    (0, "(a|b)*c{2,3}"), (1, 'root ::= "a" root | [b-d]+'), (2, "start: /a+/ [x]\nx: %json {\"enum\":[1]}"),
    (3, '{"structures":[{"begin":"<a>","schema":{"type":"integer"},"end":"</a>"}],"triggers":["<a"]}'),
    (4, "ab\nabc\nb"), (5, OBJECT), (6, '{"properties":{"s":{"type":"string","pattern":"^x"},"n":{"type":["array","null"]}}}'),
    (6, OBJECT + " "), (7, OBJECT), (7, "[ab]+"), (8, OBJECT), (9, OBJECT),
]


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    for i, (kind, text) in enumerate(CONSTRAINTS):
        for walk in range(3):
            path = folder / f"{i}-{walk}"
            path.write_bytes(bytes([kind]) + text.encode() + b"\0" + rng.randbytes(40))
            print(path)


if __name__ == "__main__":
    main()
