#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a synthetic agent trace: conversations whose context grows turn by turn.

    make_agent_trace.py > trace.jsonl [--conversations 40] [--turns 20] [--seed 1]

One line per request, in order of arrival:

    {"conversation": 3, "turn": 0, "new_ids": [...], "answer_tokens": 120}

The prompt of turn t is all of turn t - 1 (prompt and answer) followed by new_ids; turn 0 begins with new_ids alone. All
conversations share a system prompt with tool descriptions (the first 2,500 ids); turns append what agents append: short
instructions and tool results from tens to thousands of tokens (log-uniform). Conversations take turns at random, as
if people and tools thought in between; a conversation has at most one request at a time.
"""
import argparse
import json
import math
import random
import sys

VOCAB = 1000  # ids stay inside every vocabulary, the bundled model's included
SYSTEM_TOKENS = 2500


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--conversations", type=int, default=40)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every length")
    args = parser.parse_args()
    rng = random.Random(args.seed)

    def ids(n):
        return [rng.randrange(3, VOCAB) for _ in range(max(1, round(n * args.scale)))]

    def log_uniform(low, high):
        return math.exp(rng.uniform(math.log(low), math.log(high)))

    system = ids(SYSTEM_TOKENS)
    turn_of = [0] * args.conversations
    waiting = list(range(args.conversations))
    while waiting:
        conversation = rng.choice(waiting)
        turn = turn_of[conversation]
        new_ids = ids(log_uniform(30, 300) if turn == 0 or rng.random() < 0.2 else log_uniform(50, 3000))
        if turn == 0:
            new_ids = system + new_ids
        answer = max(1, round(log_uniform(20, 500) * args.scale))
        json.dump({"conversation": conversation, "turn": turn, "new_ids": new_ids, "answer_tokens": answer}, sys.stdout)
        sys.stdout.write("\n")
        turn_of[conversation] += 1
        if turn_of[conversation] == args.turns:
            waiting.remove(conversation)


if __name__ == "__main__":
    main()
