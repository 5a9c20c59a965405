#!/usr/bin/env python3
"""Packs the JSON-Schema-Test-Suite into tests/data/json_schema/suite.json.xz.

    make_suite.py PATH_TO_JSON_SCHEMA_TEST_SUITE

One JSON object per line: {"file": "draft2020-12/allOf.json", "groups": [...]} for the tests, and
{"uri": "http://localhost:1234/...", "document": {...}} for the remote documents.
"""
import json
import lzma
import pathlib
import sys

DRAFTS = ["draft4", "draft6", "draft7", "draft2019-09", "draft2020-12"]


def main():
    root = pathlib.Path(sys.argv[1])
    out = pathlib.Path(__file__).resolve().parents[2] / "tests/data/json_schema/suite.json.xz"
    lines = []
    for draft in DRAFTS:
        files = sorted((root / "tests" / draft).glob("*.json")) + sorted((root / "tests" / draft / "optional/format").glob("*.json"))
        for file in files:
            name = file.relative_to(root / "tests").as_posix()
            # Texts, not values: the spelling of numbers (1.0) is part of the tests.
            lines.append({"file": name, "groups": file.read_text()})
    for file in sorted((root / "remotes").rglob("*.json")):
        uri = "http://localhost:1234/" + file.relative_to(root / "remotes").as_posix()
        lines.append({"uri": uri, "document": file.read_text()})
    data = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    out.write_bytes(lzma.compress(data.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(out, out.stat().st_size, "bytes", len(lines), "files")


if __name__ == "__main__":
    main()
