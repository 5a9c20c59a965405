#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Brings the figures of one run on a card into docs/performance.md and docs/performance.json.

usage: figures.py COMMIT DIRECTORY     with the outputs of the benchmarks at that commit, those that there are:
  cuda_bench.txt   cuda_bench
  layers.txt       layer_bench SLICE bf16 decode prefill
  serve.txt        serve_bench SLICE bf16 1 64 256
Tables are found by their first line and replaced whole; in the sections on CUDA "figures of commit X" names the new one.
"""
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MD, JSON = ROOT / "docs/performance.md", ROOT / "docs/performance.json"
# Names of cuda_bench's ops in the tables, by unit.
NAMES = {("experts", "GB/s"): "experts, decode (weight bytes)", ("experts", "TFLOP/s"): "experts, prefill",
         ("linear", "GB/s"): "linear fp8, decode (weight bytes)", ("linear", "TFLOP/s"): "linear fp8, prefill",
         ("head", "GB/s"): "head, bf16 weights, fp32 inputs (weight bytes)", ("attention", "TFLOP/s"): "sparse attention",
         ("index select", "GB/s"): "index select (key bytes per row)", ("mHC mix", "GB/s"): "mHC mix and collapse"}
TARGETS = {(32, 8192): "> 2,000", (256, 8192): "> 9,000", (128, 131072): "> 5,000"}
COLUMNS = [(1, 8192), (32, 8192), (256, 8192), (128, 131072)]  # of the table of layers


def short(context):
    return f"{context // 1024}k"


def replace_table(text, first, rows):
    """The table that begins with the line `first`, with these rows."""
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(first))
    end = next(i for i in range(at, len(lines)) if not lines[i].startswith("|"))
    return "\n".join(lines[:at + 2] + rows + lines[end:])


def replace_rows(table, ops, rows):
    """A JSON table with the rows of these ops in the place of the old ones."""
    table["rows"] = rows + [row for row in table["rows"] if not row["op"].startswith(ops)]


def row(op, shape, value, unit, bound=None, note=""):
    return {"op": op, "shape": shape, "value": value, "unit": unit, "bound": bound, "note": note}


def ops(lines, table):
    peaks = [r for r in table["rows"] if "matrix product" in r["op"]]  # measured with another program
    found = [re.match(r"(\S.*?) {2,}(\S.*?) {2,}([\d.]+) (\S+) *(.*)", line) for line in lines]
    rows = []
    for op, shape, value, unit, note in (m.groups() for m in found if m):
        bound = {"GB/s": rows[0]["value"] if rows else None, "TFLOP/s": peaks[0]["value"]}.get(unit)
        rows.append(row(NAMES.get((op, unit), op), shape, float(value), unit, bound, note.split(", ")[0]))
    rows[1:1] = peaks
    table["rows"] = rows + [r for r in table["rows"] if r["op"] == "cost of invariance"]  # has a table of its own
    share = lambda r: f"{100 * r['value'] / r['bound']:.0f} %" if r["bound"] else ""
    return [f"| {r['op']} | {r['shape']} | {r['value']:,.1f} | {r['unit']} | {share(r)} | {r['note']} |" for r in rows]


def layers(text, lines, table):
    decode, micros, prefill, rows = [], [], [], []
    for line in lines:
        if m := re.match(r"decode +batch +(\d+) context +(\d+): step +([\d.]+) ms, +(\d+) tokens/s; "
                         r"bound +([\d.]+) ms.*?, +([\d.]+) ms of FLOPs; us: (.*)", line):
            batch, context, bound = int(m[1]), int(m[2]), max(float(m[5]), float(m[6]))
            decode.append(f"| batch {batch}, {short(context)} | {float(m[3]):.1f} ms | {int(m[4]):,} | "
                          f"{TARGETS.get((batch, context), '')} | {bound:.1f} ms |")
            rows.append(row("decode step, 40 layers extrapolated", f"batch {batch}, context {context}, 48 experts, bf16", float(m[3]), "ms",
                            bound, f"{m[4]} tokens/s"))
            if (batch, context) in COLUMNS:
                micros.append((f"batch {batch}, {short(context)}", m[7]))
        elif m := re.match(r"prefill chunk of 8192 rows at the end of (\d+): us: (.*)", line):
            micros.append((f"prefill, 8,192 rows at {short(int(m[1]))}", m[2]))
        elif m := re.match(r"prefill +(\d+) tokens, (\w+) *: +([\d.]+) ms, +(\d+) tokens/s; bound ([\d.]+) ms.*; (\d+) TFLOP/s", line):
            tokens, replay, rate = int(m[1]), m[2], int(m[4])
            target = "> 30,000" if replay == "decoder" else ""
            name = f"{short(tokens)}, " + ("`--replay decoder`" if replay == "decoder" else "exact")
            prefill.append(f"| {name} | {rate:,} ({m[6]} TFLOP/s) | {target} | {float(m[5]):,.0f} of {float(m[3]):,.0f} ms |")
            rows.append(row("prefill, 40 layers extrapolated", f"{tokens} tokens, replay {replay}, 48 experts, bf16", rate, "tokens/s",
                            round(tokens / float(m[5]) * 1e3), f"{m[3]} ms"))
    text = replace_table(text, "| decode | step |", decode)
    numbers = lambda values: " | ".join(f"{int(v.split()[-1]):,}" for v in values.split(", "))
    text = replace_table(text, "| microseconds |", [f"| {name} | {numbers(values)} |" for name, values in micros])
    replace_rows(table, ("decode step", "prefill,"), rows)
    return replace_table(text, "| prefill | tokens/s |", prefill)


def serve(text, lines, table):
    steps, rows = [], []
    for line in lines:
        if m := re.match(r" *(\d+) requests: step ([\d.]+) ms, (\d+) tokens/s; the card waits ([\d.]+) us a step, ([\d.]+) %", line):
            target = " (target < 5 %)" if m[1] == "64" else ""
            steps.append(f"| {m[1]} | {float(m[2]):.2f} ms | {int(m[3]):,} | {float(m[4]):.0f} us, {m[5]} %{target} |")
            rows.append(row("engine step on the slice", f"{m[1]} requests, bf16", float(m[2]), "ms", None,
                            f"{m[3]} tokens/s; the card waits {m[4]} us, {m[5]} %"))
    replace_rows(table, ("engine step",), rows)
    return replace_table(text, "| requests | step |", steps)


def main():
    commit, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    figures, text = json.loads(JSON.read_text()), MD.read_text()
    begin, middle, end = text.index("\n## CUDA, "), text.index("\n## CUDA: layers"), text.index("\n## CPU")
    one, two = text[begin:middle], text[middle:end]
    read = lambda name: (directory / name).read_text().splitlines() if (directory / name).exists() else None
    name = lambda part, what: re.sub(rf"{what} of commit \w+", f"{what} of commit {commit}", part)
    if lines := read("cuda_bench.txt"):
        one = name(replace_table(one, "| op | shape |", ops(lines, figures["cuda"])), "figures")
        figures["cuda"]["commit"] = commit
    if lines := read("layers.txt"):
        two = name(layers(two, lines, figures["cuda_layers"]), "layers")
        figures["cuda_layers"]["commit"] = commit
    if lines := read("serve.txt"):
        two = name(serve(two, lines, figures["cuda_layers"]), "steps")
    MD.write_text(text[:begin] + one + two + text[end:])
    JSON.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


main()
