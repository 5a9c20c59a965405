#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Brings the figures of one run on a card into docs/performance.md and docs/performance.json.

usage: figures.py COMMIT DIRECTORY     with the outputs of the benchmarks at that commit, those that there are:
  cuda_bench.txt                    cuda_bench
  layers_bf16.txt, layers_fp8.txt   layer_bench SLICE bf16 decode prefill, and the same with fp8
  serve_bf16.txt, serve_fp8.txt     serve_bench SLICE bf16 1 64 256, and the same with fp8
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
         ("inputs8", "GB/s"): "rows for FP8 products (bytes read + written)",
         ("linear", "GB/s"): "linear fp8, decode (weight bytes)", ("linear", "TFLOP/s"): "linear fp8, prefill",
         ("head", "GB/s"): "head, bf16 weights, fp32 inputs (weight bytes)", ("attention", "TFLOP/s"): "sparse attention",
         ("index select", "GB/s"): "index select (key bytes per row)", ("mHC mix", "GB/s"): "mHC mix and collapse"}
TARGETS = {(32, 8192): "> 2,000", (256, 8192): "> 9,000", (128, 131072): "> 5,000"}
KINDS = ["bf16", "fp8"]  # activation types, in the order of the tables' columns
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
    peaks = [r for r in table["rows"] if "matrix product" in r["op"]]  # measured with another program: bf16, fp8
    found = [re.match(r"(\S.*?) {2,}(\S.*?) {2,}([\d.]+) (\S+) *(.*)", line) for line in lines]
    rows = []
    for op, shape, value, unit, note in (m.groups() for m in found if m):
        bound = {"GB/s": rows[0]["value"] if rows else None, "TFLOP/s": peaks[shape.endswith("fp8")]["value"]}.get(unit)
        rows.append(row(NAMES.get((op, unit), op), shape, float(value), unit, bound, note.split(", ")[0]))
    rows[1:1] = peaks
    table["rows"] = rows + [r for r in table["rows"] if r["op"] == "cost of invariance"]  # has a table of its own
    share = lambda r: f"{100 * r['value'] / r['bound']:.0f} %" if r["bound"] else ""
    return [f"| {r['op']} | {r['shape']} | {r['value']:,.1f} | {r['unit']} | {share(r)} | {r['note']} |" for r in rows]


def layers(text, outputs, table):
    """outputs: by activation type, the lines of layer_bench."""
    decode, micros, prefill, bounds, rows = {}, [], {}, {}, []
    for kind, lines in outputs.items():
        for line in lines:
            if m := re.match(r"decode +batch +(\d+) context +(\d+): step +([\d.]+) ms, +(\d+) tokens/s; "
                             r"bound +([\d.]+) ms.*?, +([\d.]+) ms of FLOPs; us: (.*)", line):
                key = int(m[1]), int(m[2])
                bounds[key] = max(float(m[5]), float(m[6]))
                decode.setdefault(key, {})[kind] = f"{float(m[3]):.1f} ms, {int(m[4]):,}"
                rows.append(row("decode step, 40 layers extrapolated", f"batch {key[0]}, context {key[1]}, 48 experts, {kind}",
                                float(m[3]), "ms", bounds[key], f"{m[4]} tokens/s"))
                if key in COLUMNS:
                    micros.append((f"batch {key[0]}, {short(key[1])}, {kind}", m[7]))
            elif m := re.match(r"prefill chunk of 8192 rows at the end of (\d+): us: (.*)", line):
                micros.append((f"prefill, 8,192 rows at {short(int(m[1]))}, {kind}", m[2]))
            elif m := re.match(r"prefill +(\d+) tokens, (\w+) *: +([\d.]+) ms, +(\d+) tokens/s; bound ([\d.]+) ms.*; (\d+) TFLOP/s", line):
                key = int(m[1]), m[2]
                bounds[key] = float(m[5])
                prefill.setdefault(key, {})[kind] = f"{int(m[4]):,} ({m[6]} TFLOP/s)"
                rows.append(row("prefill, 40 layers extrapolated", f"{m[1]} tokens, replay {m[2]}, 48 experts, {kind}", int(m[4]),
                                "tokens/s", round(key[0] / bounds[key] * 1e3), f"{m[3]} ms"))
    cells = lambda of: " | ".join(of.get(kind, "") for kind in KINDS)
    text = replace_table(text, "| decode, step and tokens/s |", [
        f"| batch {key[0]}, {short(key[1])} | {cells(of)} | {TARGETS.get(key, '')} | {bounds[key]:.1f} ms |" for key, of in decode.items()])
    numbers = lambda values: " | ".join(f"{int(v.split()[-1]):,}" for v in values.split(", "))
    text = replace_table(text, "| microseconds |", [f"| {name} | {numbers(values)} |" for name, values in micros])
    replace_rows(table, ("decode step", "prefill,"), rows)
    how = lambda replay: "`--replay decoder`" if replay == "decoder" else "exact"
    return replace_table(text, "| prefill, tokens/s |", [
        f"| {short(key[0])}, {how(key[1])} | {cells(of)} | {'> 30,000' if key[1] == 'decoder' else ''} | {bounds[key]:,.0f} ms |"
        for key, of in prefill.items()])


def serve(text, outputs, table):
    """outputs: by activation type, the lines of serve_bench."""
    steps, rows = {}, []
    for kind, lines in outputs.items():
        for line in lines:
            if m := re.match(r" *(\d+) requests: step ([\d.]+) ms, (\d+) tokens/s; the card waits ([\d.]+) us a step, ([\d.]+) %", line):
                steps.setdefault(m[1], {})[kind] = f"{float(m[2]):.2f} ms, {int(m[3]):,} | {float(m[4]):.0f} us, {m[5]} %"
                rows.append(row("engine step on the slice", f"{m[1]} requests, {kind}", float(m[2]), "ms", None,
                                f"{m[3]} tokens/s; the card waits {m[4]} us, {m[5]} %"))
    replace_rows(table, ("engine step",), rows)
    return replace_table(text, "| requests | bf16 |", [
        f"| {requests} | {' | '.join(of.get(kind, ' | ') for kind in KINDS)} |" for requests, of in steps.items()])


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
    both = lambda what: {kind: lines for kind in KINDS if (lines := read(f"{what}_{kind}.txt"))}
    if outputs := both("layers"):
        two = name(layers(two, outputs, figures["cuda_layers"]), "layers")
        figures["cuda_layers"]["commit"] = commit
    if outputs := both("serve"):
        two = name(serve(two, outputs, figures["cuda_layers"]), "steps")
    MD.write_text(text[:begin] + one + two + text[end:])
    JSON.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


main()
