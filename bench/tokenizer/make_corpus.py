#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the texts that the tokenizer benchmark encodes, the same bytes every time:

  mixed.txt     1 MB: prose, code, Chinese, JSON and chat with emoji, in turns of a few KB
  chats.jsonl   200 short messages, one JSON string a line
  long.txt      prose and code of at least 1 million tokens

Words are drawn from the vocabulary of the published tokenizer with a Zipf distribution and a fixed seed, so there are
frequent and rare words as in real text, and no text of anyone's.

  bench/tokenizer/make_corpus.py TOKENIZER_JSON OUT_DIR
"""
import bisect
import itertools
import json
import pathlib
import random
import sys

EMOJI = "😀 😂 🤔 👍 🎉 ❤️ 🚀 🐛 ✅ 🙏 👩‍💻 🏳️‍🌈".split()


class Words:
    """Draws the i-th word with weight 1 / (i + 8)."""

    def __init__(self, rng, words):
        self.rng = rng
        self.words = words
        self.sums = list(itertools.accumulate(1 / (i + 8) for i in range(len(words))))

    def __call__(self):
        return self.words[bisect.bisect_left(self.sums, self.rng.random() * self.sums[-1])]


class Writer:
    def __init__(self, vocab, seed):
        self.rng = random.Random(seed)
        by_id = sorted(vocab, key=vocab.get)
        latin = [t[1:] for t in by_id if t[0] == "Ġ" and t[1:].isascii() and t[1:].isalpha() and len(t) > 2]
        accented = self.decoded(t[1:] for t in by_id if t[0] == "Ġ" and not t[1:].isascii())
        chinese = self.decoded(t for t in by_id if not t.isascii())
        self.word = Words(self.rng, latin)
        self.foreign = Words(self.rng, [w for w in accented if w.isalpha() and len(w) > 1])
        self.chinese = Words(self.rng, [w for w in chinese if all("\u4e00" <= c <= "\u9fa5" for c in w)])

    @staticmethod
    def decoded(tokens):
        """Texts of the byte-level spellings that are whole characters."""
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = [b for b in range(256) if b not in printable]
        to_byte = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
        for token in tokens:
            try:
                yield bytes(to_byte[c] for c in token).decode("utf-8")
            except (KeyError, UnicodeDecodeError):
                continue

    def sentence(self, word):
        words = [word() for _ in range(self.rng.randint(4, 18))]
        if self.rng.random() < 0.2:
            words.insert(self.rng.randrange(len(words)), str(self.rng.randint(0, 3000)))
        if len(words) > 9:
            words[4] += ","
        return " ".join(words).capitalize() + self.rng.choice([".", ".", ".", "?", "!", ":"])

    def prose(self):
        word = self.foreign if self.rng.random() < 0.2 else self.word
        return " ".join(self.sentence(word) for _ in range(self.rng.randint(3, 7))) + "\n\n"

    def hanzi(self):
        clauses = ["".join(self.chinese() for _ in range(self.rng.randint(2, 7))) for _ in range(12)]
        return "".join(c + self.rng.choice(["，", "，", "。", "、", "2024年", "？"]) for c in clauses) + "。\n"

    def name(self):
        style = self.rng.random()
        a, b = self.word().lower(), self.word().lower()
        return f"{a}_{b}" if style < 0.4 else f"{a}{b.capitalize()}" if style < 0.7 else a

    def code(self):
        lines = [f"def {self.name()}({self.name()}, {self.name()}=None):", f'    """{self.sentence(self.word)}"""']
        for _ in range(self.rng.randint(3, 9)):
            indent = "    " * self.rng.randint(1, 3)
            lines.append(indent + self.rng.choice([
                f"if {self.name()} is not None and len({self.name()}) >= {self.rng.randint(0, 64)}:",
                f"{self.name()} = {self.name()}.{self.name()}({self.name()}[{self.rng.randint(0, 9)}])",
                f"for i in range({self.rng.randint(1, 4096)}):  # {self.name()}",
                f'return {{"{self.name()}": self.{self.name()}, "n": 0x{self.rng.getrandbits(16):x}}}',
                f"std::vector<{self.name()}>& {self.name()} = *{self.name()}->{self.name()}();",
            ]))
        return "\n".join(lines) + "\n\n"

    def json(self):
        record = {self.name(): self.rng.choice([self.word(), self.rng.randint(0, 99999), self.rng.random(), True, None])
                  for _ in range(self.rng.randint(3, 8))}
        return json.dumps(record, ensure_ascii=False, indent=self.rng.choice([None, 2])) + "\n"

    def chat(self):
        kind = self.rng.random()
        text = self.hanzi().strip() if kind < 0.25 else self.sentence(self.word) + " " + self.sentence(self.word)
        return text + (" " + self.rng.choice(EMOJI) if self.rng.random() < 0.4 else "")


def fill(writers, size, rng):
    parts, total = [], 0
    while total < size:
        write = rng.choice(writers)
        part = "".join(write() for _ in range(rng.randint(2, 8)))
        parts.append(part)
        total += len(part.encode())
    return "".join(parts).encode()[:size].decode("utf-8", errors="ignore")


def main():
    tokenizer, out = sys.argv[1], pathlib.Path(sys.argv[2])
    vocab = json.loads(pathlib.Path(tokenizer).read_text(encoding="utf-8"))["model"]["vocab"]
    w = Writer(vocab, 20260101)
    out.mkdir(parents=True, exist_ok=True)
    mixed = fill([w.prose, w.prose, w.code, w.hanzi, w.json, lambda: w.chat() + "\n"], 1_000_000, w.rng)
    (out / "mixed.txt").write_text(mixed, encoding="utf-8")
    chats = "".join(json.dumps(w.chat(), ensure_ascii=False) + "\n" for _ in range(200))
    (out / "chats.jsonl").write_text(chats, encoding="utf-8")
    (out / "long.txt").write_text(fill([w.prose, w.code, w.hanzi], 4_400_000, w.rng), encoding="utf-8")


if __name__ == "__main__":
    main()
