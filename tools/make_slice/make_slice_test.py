#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A small slice: the same bytes for the same seed, and it runs through `deepinfer generate`, drafts included.

  make_slice_test.py MAKE_SLICE DEEPINFER TOKENIZER
"""
import hashlib
import pathlib
import subprocess
import sys
import tempfile

MAKE, DEEPINFER, TOKENIZER = sys.argv[1:4]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def digest(folder):
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


with tempfile.TemporaryDirectory() as scratch:
    folders = {}
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        folders[name] = pathlib.Path(scratch, name)
        run(MAKE, "--small", "--experts", "8", "--engram-vocab", "300", "--draft-stages", "2", "--seed", str(seed),
            "--tokenizer", TOKENIZER, str(folders[name]))
    assert digest(folders["a"]) == digest(folders["b"]) != digest(folders["c"])
    command = [DEEPINFER, "generate", "--model", str(folders["a"]), "--ids", "--ignore-eos", "--max-tokens", "12"]
    prompt = ",".join(str(3 + i * 7 % 500) for i in range(200))
    first = run(*command, prompt)
    assert first.count(",") == 11 and first == run(*command, prompt), first
print("ok")
