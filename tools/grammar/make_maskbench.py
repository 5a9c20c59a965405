#!/usr/bin/env python3
"""Packs MaskBench schemas as JSON lines, xz-compressed.

    make_maskbench.py PATH_TO_JSONSCHEMABENCH/maskbench/data OUT.xz [COUNT]

With COUNT, a fixed sample: the files are ordered by the SHA-256 of their name and the first COUNT whose size is at most
20 kB are taken. Each line: {"name", "schema": text, "tests": [{"valid", "data": text}]}, data spelled as MaskBench's
runner does (json.dumps).
"""
import hashlib
import json
import lzma
import pathlib
import sys


def main():
    files = sorted(pathlib.Path(sys.argv[1]).glob("*.json"))
    count = int(sys.argv[3]) if len(sys.argv) > 3 else None
    if count is not None:
        files = [f for f in files if f.stat().st_size <= 20_000]
        files.sort(key=lambda f: hashlib.sha256(f.name.encode()).hexdigest())
        files = sorted(files[:count])
    lines = []
    for file in files:
        entry = json.loads(file.read_text())
        tests = [{"valid": t["valid"], "data": json.dumps(t["data"], ensure_ascii=False)} for t in entry["tests"]]
        lines.append(json.dumps({"name": file.stem, "schema": json.dumps(entry["schema"], ensure_ascii=False), "tests": tests},
                                ensure_ascii=False))
    data = ("\n".join(lines) + "\n").encode()
    out = pathlib.Path(sys.argv[2])
    out.write_bytes(lzma.compress(data, preset=6))
    print(out, len(lines), "schemas", out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
