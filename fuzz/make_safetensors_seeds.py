#!/usr/bin/env python3
"""Writes small safetensors files as fuzz seeds into a folder, and prints their paths."""
import json
import pathlib
import struct
import sys


def file(header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    seeds = {
        "empty": file({}, b""),
        "metadata": file({"__metadata__": {"format": "pt"}, "a": tensor("U8", [2, 2], 0, 4)}, b"abcd"),
        "several": file({"w.weight": tensor("F8_E4M3", [4, 2], 8, 16), "w.scale": tensor("F8_E8M0", [1, 1], 16, 17),
                         "b": tensor("F32", [2], 0, 8)}, bytes(17)),
        "scalar_and_none": file({"s": tensor("BF16", [], 0, 2), "n": tensor("I64", [0, 5], 2, 2)}, b"ab"),
        "overlap": file({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, b"abc"),
        "huge": file({"a": tensor("U8", [4294967296, 4294967296], 0, 2)}, b"ab"),
        "long": struct.pack("<Q", 1 << 60) + b"{}",
    }
    for name, data in seeds.items():
        path = folder / name
        path.write_bytes(data)
        print(path)


if __name__ == "__main__":
    main()
