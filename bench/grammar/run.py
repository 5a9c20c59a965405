#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Constrained decoding beside its peers: MaskBench with this library, llguidance and xgrammar in one run on one core.

    run.py [--build DIR] [--schemas FILE.jsonl.xz] [--slices N] [--engines A,B] [--wrap COMMAND]

The schemas are cut into slices; each slice is done by every engine in turn, so that all meet the same conditions. Engines
are kept to one core, times are CPU times. A schema that an engine does not finish within --limit seconds counts as
refused. Needs build/bin/maskbench (cmake -DDI_BENCH=ON); makes the published V4.1 tokenizer and the virtual environment
.venv-grammar with the peers when they are missing (torch comes with xgrammar: about 6 GB).

The whole suite: tools/grammar/make_maskbench.py packs it from a checkout of github.com/guidance-ai/jsonschemabench,
commit ba103c73756198dd9b149ddc7db7867da7a077f6.
"""
import argparse
import json
import lzma
import os
import pathlib
import select
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ["llguidance==1.9.1", "xgrammar==0.2.9"]


def one_core():
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def prepare(build):
    tokenizer = build / "data/v41/tokenizer.json"
    subprocess.run([sys.executable, ROOT / "tools/make_v41_tokenizer.py", tokenizer], check=True)
    python = ROOT / ".venv-grammar/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", ROOT / ".venv-grammar"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS], check=True)
    return tokenizer, python


def run_ours(program, tokenizer, lines, folder, wrap):
    schemas, out = folder / "slice.jsonl.xz", folder / "out.jsonl"
    schemas.write_bytes(lzma.compress("".join(lines).encode(), preset=0))
    subprocess.run([*wrap, program, tokenizer, schemas, "--out", out], check=True, stdout=subprocess.DEVNULL, preexec_fn=one_core)
    return [json.loads(line) for line in out.read_text().splitlines()]


class Worker:
    """One peer process; it is started anew after a schema that it did not survive."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        preexec_fn=one_core)
        self.rest = b""
        if self.read(120) is None:
            raise SystemExit(f"{command}: does not start")

    def read(self, seconds):
        fd = self.process.stdout.fileno()
        while b"\n" not in self.rest:
            if not select.select([fd], [], [], seconds)[0]:
                return None
            more = os.read(fd, 1 << 20)
            if not more:
                return None
            self.rest += more
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def ask(self, line, seconds):
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        return self.read(seconds)

    def stop(self):
        self.process.kill()
        self.process.wait()


def run_peer(command, lines, limit):
    worker, results = Worker(command), []
    for line in lines:
        result = worker.ask(line, limit)
        if result is None:
            worker.stop()
            message = "crash" if worker.process.returncode != -9 else f"not done in {limit} s"
            result = {"name": json.loads(line)["name"], "outcome": "refused", "message": message, "compile_us": 0, "tokens": 0,
                      "mask_us": []}
            worker = Worker(command)
        results.append(result)
    worker.stop()
    return results


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))] if values else 0


def mean(values):
    return sum(values) / len(values) if values else 0


def figures(results):
    masks = [us for result in results for us in result["mask_us"]]
    compiles = [result["compile_us"] for result in results if result["outcome"] != "refused"]
    return (f"{len(masks):9} {mean(masks):9.1f} {quantile(masks, .5):7.1f} {quantile(masks, .99):9.1f} {max(masks, default=0):10.0f}   "
            f"{mean(compiles) / 1e3:8.2f} {quantile(compiles, .99) / 1e3:9.2f}")


def report(results):
    outcomes = ["pass", "refused", "wrong accept", "wrong reject", "error"]
    head = f"{'masks':>9} {'mean us':>9} {'p50':>7} {'p99':>9} {'max':>10}   {'mean ms':>8} {'p99 ms':>9}"
    print(f"{'':18}" + "".join(f"{name:>14}" for name in outcomes) + "   " + head)
    for engine, rows in results.items():
        counts = [sum(row["outcome"] == outcome for row in rows) for outcome in outcomes]
        print(f"{engine:18}" + "".join(f"{count:14}" for count in counts) + "   " + figures(rows))
    names = [{row["name"] for row in rows if row["outcome"] == "pass"} for rows in results.values()]
    common = set.intersection(*names)
    print(f"\nthe {len(common)} schemas that all pass:")
    for engine, rows in results.items():
        print(f"{engine:18}" + figures([row for row in rows if row["name"] in common]))
    tokens = [{row["name"]: row["tokens"] for row in rows if row["name"] in common} for rows in results.values()]
    print("tokens of the instances: " + ("equal" if all(t == tokens[0] for t in tokens) else "DIFFERENT"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--schemas", type=pathlib.Path, default=ROOT / "tests/data/json_schema/maskbench_sample.jsonl.xz")
    parser.add_argument("--slices", type=int, default=10)
    parser.add_argument("--limit", type=float, default=60, help="seconds for one schema")
    parser.add_argument("--engines", default="ours,llguidance,xgrammar")
    parser.add_argument("--out", type=pathlib.Path, help="all results as JSON lines")
    parser.add_argument("--wrap", default="", help="a command to run maskbench and the peers under")
    arguments = parser.parse_args()
    tokenizer, python = prepare(arguments.build)
    engines, wrap = arguments.engines.split(","), shlex.split(arguments.wrap)
    lines = lzma.open(arguments.schemas, "rt").read().splitlines(keepends=True)
    results = {engine: [] for engine in engines}
    with tempfile.TemporaryDirectory() as folder:
        for i in range(arguments.slices):
            part = lines[i :: arguments.slices]
            for engine in engines:
                if engine == "ours":
                    results[engine] += run_ours(arguments.build / "bin/maskbench", tokenizer, part, pathlib.Path(folder), wrap)
                else:
                    command = [*wrap, python, ROOT / "bench/grammar/peers.py", engine, tokenizer]
                    results[engine] += run_peer(command, part, arguments.limit)
            print(f"slice {i + 1} of {arguments.slices}: {len(part)} schemas", file=sys.stderr, flush=True)
    if arguments.out:
        with arguments.out.open("w") as out:
            for engine, rows in results.items():
                for row in rows:
                    out.write(json.dumps({"engine": engine} | row) + "\n")
    report(results)


if __name__ == "__main__":
    main()
