#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares this tokenizer with its peers on PyPI: same texts, same ids, same run.

  cmake --preset bench && cmake --build build --target tokenizer_bench
  bench/tokenizer/run.py [--build build] [--rounds 5]

Makes what it needs on the first run: the published tokenizer (tools/make_v41_tokenizer.py), the texts
(make_corpus.py), and the virtual environment .venv-tokenizer with the peers. Every round runs all of them in turn on
one core, so that noise of the machine falls on all alike; figures are medians over the rounds, each itself a median
of repeated encodings by a loaded tokenizer. Seconds are those of the CPU, except on two cores, where the clock counts
(so that figure needs an idle machine). "first" is the first encoding of the text after loading.
"""
import argparse
import array
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PEERS = ["tokenizers==0.23.3", "deepseek-recipe==0.2.0", "gigatoken==0.10.0"]


def seconds(work, repeat):
    """CPU time."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return times


def measure_peer(name, tokenizer, corpus):
    """Runs inside the virtual environment; prints one JSON line."""
    mixed = (corpus / "mixed.txt").read_text(encoding="utf-8")
    long = (corpus / "long.txt").read_text(encoding="utf-8")
    chats = [json.loads(line) for line in (corpus / "chats.jsonl").read_text(encoding="utf-8").splitlines()]
    slow = name != "gigatoken"
    if name == "tokenizers":
        import tokenizers
        loaded = tokenizers.Tokenizer.from_file(str(tokenizer))
        encode = lambda text: loaded.encode(text, add_special_tokens=False).ids
    elif name == "deepseek-recipe":
        import deepseek_recipe
        encode = deepseek_recipe.Tokenizer.from_file(str(tokenizer)).encode
    else:
        import gigatoken
        encode = gigatoken.Tokenizer(str(tokenizer)).encode
    first = seconds(lambda: encode(mixed), 1)[0]
    times = seconds(lambda: encode(mixed), 2 if slow else 15)
    chat_times = seconds(lambda: [encode(chat) for chat in chats], 2 if slow else 15)
    report = {
        "mixed_first_mb_s": len(mixed.encode()) / first / 1e6,
        "mixed_mb_s": len(mixed.encode()) / statistics.median(times) / 1e6,
        "chats_mb_s": sum(len(chat.encode()) for chat in chats) / statistics.median(chat_times) / 1e6,
        "mixed_ids": [int(i) for i in encode(mixed)],
        "chat_ids": [int(i) for chat in chats for i in encode(chat)],
    }
    if not slow:
        report["long_ms"] = statistics.median(seconds(lambda: encode(long), 3)) * 1e3
    print(json.dumps(report))


def ids_of(path):
    ids = array.array("i")
    ids.frombytes(path.read_bytes())
    return ids.tolist()


def run(command, cores):
    """The last line that `command` prints, as JSON, with the process kept to that many cores."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, allowed))
    if done.returncode != 0:
        raise SystemExit(f"{command[0]}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def prepare(build):
    data = build / "data"
    tokenizer, corpus = data / "v41/tokenizer.json", data / "tokenizer_bench"
    subprocess.run([sys.executable, ROOT / "tools/make_v41_tokenizer.py", tokenizer], check=True)
    if not (corpus / "long.txt").exists():
        subprocess.run([sys.executable, ROOT / "bench/tokenizer/make_corpus.py", tokenizer, corpus], check=True)
    python = ROOT / ".venv-tokenizer/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", ROOT / ".venv-tokenizer"], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEERS], check=True)
    return tokenizer, corpus, python


def main():
    if sys.argv[1:2] == ["--peer"]:
        measure_peer(sys.argv[2], pathlib.Path(sys.argv[3]), pathlib.Path(sys.argv[4]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    tokenizer, corpus, python = prepare(arguments.build)
    ours = arguments.build / "bin/tokenizer_bench"
    names = {requirement.split("==")[0]: requirement for requirement in PEERS}
    rounds = {name: [] for name in ["ours", "ours, two cores", *names]}
    for _ in range(arguments.rounds):
        rounds["ours"].append(run([ours, tokenizer, corpus, "1", corpus], 1))
        rounds["ours, two cores"].append(run([ours, tokenizer, corpus, "2"], 2))
        for name in names:
            rounds[name].append(run([python, __file__, "--peer", name, tokenizer, corpus], 1))

    def median(name, key):
        return statistics.median(report[key] for report in rounds[name])

    def ratio(name, other, key):
        return statistics.median(a[key] / b[key] for a, b in zip(rounds[name], rounds[other]))

    mixed, chats = ids_of(corpus / "mixed.ids"), ids_of(corpus / "chats.ids")
    equal = all(report["mixed_ids"] == mixed and report["chat_ids"] == chats for name in names for report in rounds[name])
    print(f"ids: {'equal' if equal else 'DIFFERENT'} ({len(mixed)} of the mixed text, {len(chats)} of the chats)")
    print(f"{'MB/s':28}{'mixed':>9}{'first':>9}{'chats':>9}")
    for name in rounds:
        figures = [median(name, key) for key in ("mixed_mb_s", "mixed_first_mb_s", "chats_mb_s")]
        print(f"{names.get(name, name):28}" + "".join(f"{figure:9.1f}" for figure in figures))
    for name in names:
        print(f"ours / {names[name]}: mixed {ratio('ours', name, 'mixed_mb_s'):.2f}, "
              f"chats {ratio('ours', name, 'chats_mb_s'):.2f}, first {ratio('ours', name, 'mixed_first_mb_s'):.2f}")
    print(f"two cores / one, by the clock, pairs in turn: mixed {median('ours, two cores', 'mixed_gain'):.2f}, "
          f"long {median('ours, two cores', 'long_gain'):.2f}")
    print(f"{rounds['ours'][0]['long_tokens']} tokens: {median('ours', 'long_ms'):.0f} ms on one core "
          f"(first time {median('ours', 'long_first_ms'):.0f}), {median('ours, two cores', 'long_ms'):.0f} on two "
          f"(first time {median('ours, two cores', 'long_first_ms'):.0f}); gigatoken {median('gigatoken', 'long_ms'):.0f}")
    print(f"loading the published tokenizer: {median('ours', 'load_ms'):.0f} ms")
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
