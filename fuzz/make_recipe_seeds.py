#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes request bodies out of the golden vectors as seeds for recipe_request_fuzz and prints their paths.

  fuzz/make_recipe_seeds.py OUT_DIR
"""
import json
import lzma
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTOCOLS = {"chat": 0, "responses": 1, "messages": 2}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with lzma.open(ROOT / "tests/golden/recipe/requests.jsonl.xz", "rt", encoding="utf-8") as file:
        for index, line in enumerate(file):
            record = json.loads(line)
            if index % 5 or record["protocol"] not in PROTOCOLS or len(record["body"]) > 2000:
                continue
            path = out / record["id"]
            path.write_bytes(bytes([PROTOCOLS[record["protocol"]] + 4 * (index % 2)]) + record["body"].encode())
            print(path)


if __name__ == "__main__":
    main()
