#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the tracked files against the house rules that a program can check; prints what breaks one, exits 1 if any does.

usage: tidy.py [--longest N]   (also lists the N longest functions)
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 140
CODE = {".cc", ".h", ".cu", ".cuh", ".inc"}
LINED = CODE | {".py", ".sh", ".cmake"}
# Data of others, or made by a program: no rule of ours applies.
DATA = ("tests/golden/", "tests/data/", "models/", "third_party/", "src/recipe/texts/")
TABLES = {".json", ".jsonl", ".xz", ".safetensors", ".txt", ".lark", ".csv", ".inc"}

# File or folder: why lines may be longer there.
LONG_LINES = {
    "tests/grammar/": "a schema and the texts that it takes stay on one line",
    "src/grammar/grammar_test.cc": "a schema and the texts that it takes stay on one line",
    "src/grammar/grammar_c_test.cc": "calls of the C interface, one a line",
    "tests/recipe/": "a request stays on one line",
    "tests/recipe_output/": "a model's output stays on one line",
    "bench/cuda/cuda_bench.cc": "a table of cases",
    "src/backend/cuda/cache_ops_test.cc": "arguments by name: one call, one line",
    "src/backend/cuda/row_ops_test.cc": "arguments by name: one call, one line",
    "src/tokenizer/deepseek_splitter_test.cc": "a published regular expression",
    "fuzz/tokenizer_encode_fuzz.cc": "a published regular expression",
    "cmake/DiCuda.cmake": "a list of flags",
}
# "file: function": why it may be longer.
LONG_FUNCTIONS = {
    "src/backend/cuda/ptx/wgmma_sm90.cuh: Wgmma": "one instruction for each tile width, with all its registers",
}

BANNED = {
    r"(?<![\w./}])/(?:home|root|mnt|work)/(?!dir)": "a path of one machine",
    r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d+\))": "needs the number of an issue: TODO(#12)",
}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SCOPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:inline\s+)?(?:namespace|class|struct|union|enum|extern)\b")


def tracked():
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return [name for name in names if name and (ROOT / name).is_file()]


def excused(name, table):
    return any(name == key or (key.endswith("/") and name.startswith(key)) for key in table)


def blank(text):
    """C++ text with comments, strings and preprocessor lines as spaces: same lines, no braces that are no code."""
    pattern = re.compile(
        r'R"(?P<mark>[^(]*)\((?:.|\n)*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*(?:.|\n)*?\*/|^[ \t]*#(?:\\\n|[^\n])*",
        re.MULTILINE,
    )
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def functions(text):
    """(first line, lines, name) of every function outside other functions."""
    text = blank(text)
    stack, begin = [], 0  # of (kind, first line, name); where the present statement begins
    for match in re.finditer(r"[{};]", text):
        at, token = match.start(), match.group()
        outside = all(kind == "scope" for kind, _, _ in stack)
        if token == "{":
            head = text[begin:at]
            statement = " ".join(head.split())
            if outside and not (SCOPE.match(statement) and "(" not in statement.split(":")[0]):
                # `member_{1}` before the body of a constructor is no body.
                member = re.search(r"[\w>]$", head) and ":" in statement
                kind = "function" if "(" in statement and not member and not statement.endswith("=") else "other"
            else:
                kind = "scope" if outside else "block"
            line = text.count("\n", 0, begin + len(head) - len(head.lstrip())) + 1
            name = re.search(r"([\w:~]+)\s*\(", statement)
            stack.append((kind, line, name.group(1) if name else statement[:40]))
            if kind == "other":
                continue  # the statement goes on
        elif token == "}" and stack:
            kind, line, name = stack.pop()
            if kind == "function":
                yield line, text.count("\n", 0, at) + 2 - line, name
            if kind == "other":
                continue
        if outside or token != ";":
            begin = at + 1


def check_text(name, text, problems):
    lines = text.splitlines()
    suffix = pathlib.PurePath(name).suffix
    if len(lines) > FILE_LINES_MAX and suffix in LINED | {".md"}:
        problems.append(f"{name}: {len(lines)} lines, more than {FILE_LINES_MAX}: divide it")
    if suffix in CODE - {".inc"} and not re.match(r"/[/*] SPDX-License-Identifier: Apache-2.0", text):
        problems.append(f"{name}:1: expected // SPDX-License-Identifier: Apache-2.0")
    for number, line in enumerate(lines, 1):
        if suffix in LINED or name.endswith("CMakeLists.txt"):
            if "\t" in line:
                problems.append(f"{name}:{number}: a tab")
            if len(line) > COLUMNS_MAX and not excused(name, LONG_LINES):
                problems.append(f"{name}:{number}: {len(line)} columns, more than {COLUMNS_MAX}")
        if name == "tools/tidy.py":
            continue
        for pattern, why in BANNED.items():
            found = re.search(pattern, line)
            if found:
                problems.append(f"{name}:{number}: \"{found.group()}\": {why}")


def check_links(name, text, problems):
    for match in LINK.finditer(re.sub(r"```.*?```", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)):
        target = match.group(1).split("#")[0]
        if not target or re.match(r"[a-z]+:", target):
            continue
        if not (ROOT / name).parent.joinpath(target).exists():
            problems.append(f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {target} is not there")


def main():
    problems, lengths = [], []
    for name in tracked():
        path = pathlib.PurePath(name)
        if name.startswith(DATA) and path.suffix != ".md" or path.suffix in TABLES and path.name != "CMakeLists.txt":
            continue
        try:
            text = (ROOT / name).read_text()
        except UnicodeDecodeError:
            continue
        if not name.startswith(DATA):
            check_text(name, text, problems)
            if path.suffix == ".md":
                check_links(name, text, problems)
        if path.suffix in CODE and name.startswith(("src/", "apps/", "include/")):
            lengths += [(length, f"{name}:{line}: {function}", f"{name}: {function}") for line, length, function in functions(text)]
    lengths.sort(reverse=True)
    problems += [
        f"{where}: {length} lines, more than {FUNCTION_LINES_MAX}"
        for length, where, key in lengths
        if length > FUNCTION_LINES_MAX and key not in LONG_FUNCTIONS
    ]
    if sys.argv[1:2] == ["--longest"]:
        for length, where, _ in lengths[: int(sys.argv[2])]:
            print(f"{length:4} {where}")
    print("\n".join(problems) or "tidy: nothing to say")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
