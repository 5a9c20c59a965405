#!/usr/bin/env python3
"""Holds the include graph of src/ against cmake/layers.txt: includes go down only."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def read_ranks():
    ranks = {}
    for line in (ROOT / "cmake/layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            folder, rank = line.rsplit(" ", 1)
            ranks[folder] = int(rank)
    return ranks


def folder_of(path, ranks):
    """The longest listed folder that the path (relative to src/) lies in."""
    parts = path.split("/")[:-1]
    for n in range(len(parts), 0, -1):
        if "/".join(parts[:n]) in ranks:
            return "/".join(parts[:n])
    return None


def main():
    ranks = read_ranks()
    problems = []
    src = ROOT / "src"
    for file in sorted(src.rglob("*")):
        if file.suffix not in {".h", ".cc", ".cu", ".cuh", ".inc"}:
            continue
        name = file.relative_to(src).as_posix()
        own = folder_of(name, ranks)
        if own is None:
            problems.append(f"src/{name}: its folder is not listed in cmake/layers.txt")
            continue
        is_test = re.search(r"_(test|bench|fuzz)(_util)?\.(cc|cu|h)$", name)
        for number, line in enumerate(file.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(1)
            if target.startswith("deepinfer/"):
                continue
            if not (src / target).exists():
                problems.append(f"src/{name}:{number}: no such header: {target}")
                continue
            other = folder_of(target, ranks)
            allowed = other == own or ranks[other] < ranks[own] or (is_test and ranks[other] <= ranks[own])
            if not allowed:
                problems.append(
                    f"src/{name}:{number}: {own} (rank {ranks[own]}) may not include {target} "
                    f"({other}, rank {ranks[other]})")
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems in the include graph")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
