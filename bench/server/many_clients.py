#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many clients that stream chat completions from a running server, each one after the other.

  many_clients.py PORT [CLIENTS [ROUNDS [TOKENS [DROPPED]]]]     (default 256 1 256 0)

Half of the requests sample at temperature 1, a quarter with top-p 0.95 and log-probabilities, a quarter greedily. DROPPED
clients of the first round close their connection in the middle of their answer. Prints tokens/s, times to the first token,
errors, and from /metrics how long the device waited for the host between steps.
"""
import asyncio
import json
import sys
import time

PORT, CLIENTS, ROUNDS, TOKENS, DROPPED = (list(map(int, sys.argv[1:])) + [8000, 256, 1, 256, 0][len(sys.argv) - 1:])[:5]
MODEL = ""
WORDS = "cat dog boat river king mouse tree star ball bird house train moon garden bear ship".split()


def body(client: int, turn: int) -> bytes:
    request = {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": TOKENS,
               "seed": 1000 * turn + client, "reasoning_effort": "none",
               "messages": [{"role": "user", "content": f"Tell me a long story about a {WORDS[client % 16]} and a "
                                                        f"{WORDS[client // 16 % 16]}, number {client} of {turn}."}]}
    kind = client % 4
    request["temperature"] = 0 if kind == 3 else 1
    if kind == 2:
        request.update(top_p=0.95, logprobs=True, top_logprobs=5)
    return json.dumps(request).encode()


async def get(path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    text = await reader.read()
    writer.close()
    return text.decode(errors="replace")


async def one(client: int, turn: int, results: dict) -> None:
    data = body(client, turn)
    start = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                     f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        first, tokens, done = None, 0, False
        while line := await reader.readline():
            if line.startswith(b"HTTP/") and b" 200 " not in line:
                results["errors"].append((line + await reader.read(2000)).decode(errors="replace")[:500])
                break
            if not line.startswith(b"data: "):
                continue
            if line.startswith(b"data: [DONE]"):
                done = True
                break
            event = json.loads(line[6:])
            if first is None and any(c.get("delta", {}).get("content") for c in event.get("choices") or []):
                first = time.monotonic() - start
                if turn == 0 and client < DROPPED:
                    await asyncio.sleep(0.2)
                    results["dropped"] += 1
                    writer.transport.abort()
                    return
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            if event.get("error"):
                results["errors"].append(json.dumps(event["error"]))
        writer.close()
        if done:
            results["tokens"] += tokens
            results["first"].append(first)
            results["whole"].append(time.monotonic() - start)
        elif len(results["errors"]) < 1000:
            results["errors"].append(f"client {client}: the stream ended early")
    except (OSError, ValueError) as error:
        results["errors"].append(f"client {client}: {error}")


async def client_loop(client: int, results: dict) -> None:
    for turn in range(ROUNDS):
        await one(client, turn, results)


def metric(text: str, name: str) -> float:
    values = [float(line.split()[-1]) for line in text.splitlines() if line.startswith(name) and line[len(name)] in " {"]
    return sum(values)


async def main() -> int:
    results = {"tokens": 0, "first": [], "whole": [], "errors": [], "dropped": 0}
    global MODEL
    models = await get("/v1/models")
    MODEL = json.loads(models[models.index("{"):models.rindex("}") + 1])["data"][0]["id"]
    # A request before the first mark: the device's wait for it does not count.
    await one(0, 1, {"tokens": 0, "first": [], "whole": [], "errors": [], "dropped": 0})
    before = await get("/metrics")
    start = time.monotonic()
    await asyncio.gather(*(client_loop(client, results) for client in range(CLIENTS)))
    seconds = time.monotonic() - start
    after = await get("/metrics")
    first, whole = sorted(results["first"]) or [0], sorted(results["whole"]) or [0]
    at = lambda values, share: values[min(len(values) - 1, int(share * len(values)))]
    idle = metric(after, "deepinfer_device_idle_seconds_total") - metric(before, "deepinfer_device_idle_seconds_total")
    steps = metric(after, "deepinfer_steps_total") - metric(before, "deepinfer_steps_total")
    print(f"{CLIENTS} clients x {ROUNDS}: {len(whole)} whole answers, {results['tokens']} tokens in {seconds:.2f} s, "
          f"{results['tokens'] / seconds:.0f} tokens/s; first token p50 {at(first, .5) * 1e3:.0f} ms, p99 {at(first, .99) * 1e3:.0f} ms; "
          f"whole p50 {at(whole, .5):.2f} s; dropped {results['dropped']}, errors {len(results['errors'])}; "
          f"{steps:.0f} steps, the device waits {1e6 * idle / max(steps, 1):.0f} us a step, {100 * idle / seconds:.1f} % of the time")
    for error in results["errors"][:3]:
        print("  error:", error)
    return 1 if results["errors"] else 0


sys.exit(asyncio.run(main()))
