# SPDX-License-Identifier: Apache-2.0
"""The same request with the same seed gives the same answer: twice, streamed or whole, alone and beside 64 other streams."""
import http.client
import json
import threading
import unittest

from support import MODEL, Raw, alive, events, post

REQUESTS = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Tell me a story."}], "thinking": {"type": "disabled"},
                              "temperature": 1, "seed": 7, "n": 2, "max_tokens": 20, "logprobs": True, "top_logprobs": 2}),
    ("/v1/completions", {"prompt": ["Once upon a time", "One day"], "temperature": 1.2, "top_p": 0.9, "seed": 11,
                         "max_tokens": 20, "logprobs": 1}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "What is 3 + 4?"}], "max_tokens": 60, "temperature": 0}),
    ("/v1/responses", {"input": "What is the weather in Paris?", "store": False, "temperature": 0, "max_output_tokens": 80,
                       "tools": [{"type": "function", "name": "get_weather", "parameters": {
                           "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}]}),
]
VOLATILE = {"id", "created", "created_at", "completed_at", "item_id", "call_id", "signature", "encrypted_content",
            "cached_tokens", "prompt_cache_hit_tokens", "prompt_cache_miss_tokens", "cache_read_input_tokens", "input_tokens"}


def essence(value):
    """An answer without ids, times and what the cache decides."""
    if isinstance(value, dict):
        return {k: essence(v) for k, v in value.items() if k not in VOLATILE}
    return [essence(v) for v in value] if isinstance(value, list) else value


def joined(path, stream):
    """What a stream says, in the form that `spoken` gives for a whole answer."""
    texts = {}
    for _, data in stream:
        if data == "[DONE]":
            continue
        if path == "/v1/responses":
            if data["type"] == "response.completed":
                return spoken(path, data["response"])
        elif path == "/v1/messages":
            if data["type"] == "content_block_delta":
                key = (data["index"], data["delta"]["type"])
                texts[key] = texts.get(key, "") + "".join(data["delta"].get(k, "") for k in ("text", "thinking"))
        else:
            for choice in data["choices"]:
                piece = choice["text"] if "text" in choice else choice["delta"].get("content") or ""
                texts[choice["index"]] = texts.get(choice["index"], "") + piece
    return sorted((str(k), v) for k, v in texts.items() if "signature" not in str(k))


def spoken(path, answer):
    if path == "/v1/responses":
        return essence(answer["output"])
    if path == "/v1/messages":
        return sorted((str((i, b["type"] + "_delta")), b.get("text", b.get("thinking"))) for i, b in enumerate(answer["content"]))
    return sorted((str(c["index"]), c["text"] if "text" in c else c["message"]["content"]) for c in answer["choices"])


class Crowd:
    """64 streams that go on for long, each begun before the test begins."""

    def __enter__(self):
        self.raws = [Raw() for _ in range(64)]
        self.ended = 0
        begun = threading.Semaphore(0)

        def read(raw, number):
            body = {"model": MODEL, "prompt": f"Story {number}:", "temperature": 1, "max_tokens": 4000, "min_tokens": 3900, "stream": True}
            try:
                response = raw.start("POST", "/v1/completions", body)
                response.read1(1)
                begun.release()
                while response.read1(65536):
                    pass
                self.ended += 1
            except (OSError, ValueError, http.client.HTTPException):
                begun.release()

        self.threads = [threading.Thread(target=read, args=(raw, i), daemon=True) for i, raw in enumerate(self.raws)]
        for thread in self.threads:
            thread.start()
        for _ in self.threads:
            begun.acquire()
        return self

    def __exit__(self, *_):
        for raw in self.raws:
            if raw.connection.sock is not None:
                raw.connection.sock.shutdown(2)
        for thread in self.threads:
            thread.join()


class SameAnswersTest(unittest.TestCase):
    def test_C33_twice_streamed_and_in_a_crowd(self):
        alone = []
        for path, body in REQUESTS:
            status, first = post(path, {"model": MODEL, **body})
            self.assertEqual(status, 200, first)
            _, second = post(path, {"model": MODEL, **body})
            self.assertEqual(essence(first), essence(second))
            self.assertEqual(joined(path, events(path, {"model": MODEL, **body})), spoken(path, first))
            alone.append(first)
        with Crowd() as crowd:
            for (path, body), first in zip(REQUESTS, alone):
                status, beside = post(path, {"model": MODEL, **body})
                self.assertEqual(status, 200, beside)
                self.assertEqual(essence(beside), essence(first))
                self.assertEqual(joined(path, events(path, {"model": MODEL, **body})), spoken(path, first))
            self.assertEqual(crowd.ended, 0, "the crowd was gone before the end")
        alive()

    def test_C33_seeds(self):
        body = {"model": MODEL, "prompt": "Once", "max_tokens": 8, "temperature": 1}
        for seed, status in ((0, 200), (None, 200), (2**63 - 1, 200), (-1, 400), (2**63, 400), ("7", 400), (1.5, 400)):
            self.assertEqual(post("/v1/completions", {**body, "seed": seed})[0], status, seed)

    def test_the_drawn_seed_repeats_the_answer(self):
        body = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 20, "temperature": 1}
        raw = Raw()
        response = raw.start("POST", "/v1/completions", body)
        seed = int(response.getheader("x-deepinfer-seed"))
        first = json.loads(response.read())["choices"][0]["text"]
        raw.close()
        self.assertEqual(post("/v1/completions", {**body, "seed": seed})[1]["choices"][0]["text"], first)
