# SPDX-License-Identifier: Apache-2.0
"""Bugs that other servers had, by their numbers in the list: what needs HTTP and the engine. Sizes are for every day."""
import http.client
import json
import random
import threading
import time
import unittest

from support import BOB, MODEL, SCALE, Raw, alive, anthropic_client, eventually, events, metric, openai_client, post

STORY = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me a story."}], "thinking": {"type": "disabled"},
         "temperature": 0}
ENDLESS = {**STORY, "max_tokens": 8000, "min_tokens": 7900}


def idle():
    return metric("deepinfer_requests_running") == 0 and metric("deepinfer_requests_waiting") == 0


class CasesC(unittest.TestCase):
    def tearDown(self):
        alive()

    def test_C20_max_tokens(self):
        for path in ("/v1/completions", "/v1/chat/completions"):
            body = {**STORY, "prompt": "a b c"}
            for value in (0, -1, 2**40, 1.5, "5"):
                self.assertEqual(post(path, {**body, "max_tokens": value})[0], 400, (path, value))
        status, answer = post("/v1/chat/completions", {**STORY, "max_tokens": 9, "max_completion_tokens": 3})
        self.assertEqual(answer["usage"]["completion_tokens"], 3)

    def test_C18_min_tokens(self):
        status, answer = post("/v1/chat/completions", {**STORY, "max_tokens": 40, "min_tokens": 20, "stop": " a"})
        self.assertEqual((status, answer["choices"][0]["finish_reason"]), (200, "stop"))
        self.assertGreaterEqual(answer["usage"]["completion_tokens"], 20)
        self.assertEqual(post("/v1/chat/completions", {**STORY, "max_tokens": 5, "min_tokens": 6})[0], 400)

    def test_C25_usage_in_streams(self):
        for more in ({}, {"n": 2}, {"stop": " little"}):
            body = {**STORY, "max_tokens": 12, **more}
            whole = post("/v1/chat/completions", body)[1]["usage"]
            chunks = [d for _, d in events("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}) if d != "[DONE]"]
            self.assertEqual(chunks[-1]["choices"], [])
            self.assertEqual(chunks[-1]["usage"]["total_tokens"], whole["total_tokens"])
            self.assertTrue(all(c["usage"] is None for c in chunks[:-1]))
            for options in ({}, {"stream_options": {"include_usage": False}}):
                chunks = [d for _, d in events("/v1/chat/completions", {**body, **options}) if d != "[DONE]"]
                self.assertTrue(all("usage" not in c and c["choices"] for c in chunks))
        self.assertEqual(post("/v1/chat/completions", {**STORY, "stream_options": {"include_usage": True}})[0], 400)

    def test_C27_huge_numbers(self):
        bodies = [{"n": 100000}, {"top_logprobs": 10**6, "logprobs": True}, {"stop": ["x"] * 10**5},
                  {"logit_bias": {str(i): 1 for i in range(8192)}},
                  {"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(10**4)]},
                  {"messages": [{"role": "user", "content": "x"}] * 10**5}]
        for body in bodies:
            status, answer = post("/v1/chat/completions", {**STORY, **body})
            self.assertEqual(status, 400, list(body))
            self.assertTrue(answer["error"]["message"])
        self.assertEqual(post("/v1/completions", {"model": MODEL, "prompt": ["x"] * 10**4})[0], 400)

    def test_C29_repeated_request_ids(self):
        """Two streams with one X-Request-Id: each is its own; one that is given up leaves the other alone."""
        same = {"X-Request-Id": "same"}
        prompts = ["Once upon a time", "One day, a dog"]
        expected = [post("/v1/completions", {"model": MODEL, "prompt": p, "temperature": 0, "max_tokens": 60})[1] for p in prompts]
        raws = [Raw(), Raw(), Raw()]
        raws[2].start("POST", "/v1/completions", {"model": MODEL, "prompt": prompts[0], "max_tokens": 4000, "min_tokens": 4000,
                                                  "stream": True}, same)
        responses = [raw.start("POST", "/v1/completions", {"model": MODEL, "prompt": p, "temperature": 0, "max_tokens": 60}, same)
                     for raw, p in zip(raws, prompts)]
        raws[2].connection.sock.shutdown(2)
        answers = [json.loads(r.read()) for r in responses]
        self.assertEqual([a["choices"][0]["text"] for a in answers], [e["choices"][0]["text"] for e in expected])
        self.assertNotEqual(answers[0]["id"], answers[1]["id"])
        for raw in raws:
            raw.close()


class CasesE(unittest.TestCase):
    def tearDown(self):
        alive()
        self.assertTrue(eventually(idle))

    def test_E14_clients_that_leave(self):
        dice = random.Random(5)

        def client():
            raw = Raw()
            try:
                stream = dice.random() < 0.7
                raw.connection.connect()
                timer = threading.Timer(dice.random() * 0.2, lambda: raw.connection.sock and raw.connection.sock.shutdown(2))
                timer.start()
                raw.start("POST", "/v1/chat/completions", {**ENDLESS, "stream": stream, "n": dice.choice([1, 3])}).read()
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                pass
            finally:
                raw.close()

        for _ in range(3 * SCALE):
            threads = [threading.Thread(target=client) for _ in range(30)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertTrue(eventually(idle))

    def test_a_client_that_leaves_frees_its_cache_at_once(self):
        free = metric("deepinfer_cache_blocks_available")
        raw = Raw()
        response = raw.start("POST", "/v1/chat/completions", {**ENDLESS, "stream": True})
        response.read1(10)
        self.assertTrue(eventually(lambda: metric("deepinfer_requests_running") >= 1))
        raw.connection.sock.shutdown(2)
        raw.close()
        self.assertTrue(eventually(idle, 2))
        self.assertTrue(eventually(lambda: metric("deepinfer_cache_blocks_available") == free, 2))

    def test_clients_of_the_sdks_cancel(self):
        story = [{"role": "user", "content": "Tell me a story."}]
        more = {"min_tokens": 7900, "thinking": {"type": "disabled"}}
        stream = openai_client().chat.completions.create(model=MODEL, messages=story, max_tokens=8000, stream=True, extra_body=more)
        next(iter(stream))
        stream.close()
        with openai_client().responses.create(model=MODEL, input=story, max_output_tokens=8000, stream=True, extra_body=more) as stream:
            response = next(iter(stream)).response
        with anthropic_client().messages.stream(model=MODEL, messages=story, max_tokens=8000, extra_body=more) as stream:
            next(iter(stream))
        self.assertTrue(eventually(idle))
        self.assertEqual(openai_client().responses.retrieve(response.id).status, "cancelled")

    def test_E16_counters_are_what_clients_saw(self):
        names = ["deepinfer_prompt_tokens_total", "deepinfer_cached_tokens_total", "deepinfer_answer_tokens_total"]
        before = [metric(name) for name in names]
        seen = [0, 0, 0]
        for number in range(6):
            body = {"model": MODEL, "prompt": "count " * 200 + str(number // 2), "max_tokens": 5 + number, "min_tokens": 5 + number}
            usage = post("/v1/completions", body)[1]["usage"]
            seen = [a + b for a, b in zip(seen, (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"],
                                                 usage["completion_tokens"]))]
        self.assertTrue(eventually(lambda: [metric(n) - b for n, b in zip(names, before)] == seen), (names, before, seen))

    def test_E20_fairness_and_deadlines(self):
        raw = Raw()
        long_prompt = {"model": MODEL, "prompt": "word " * 12000, "max_tokens": 3000, "min_tokens": 3000, "stream": True}
        raw.start("POST", "/v1/completions", long_prompt)
        seconds = []

        def short(number):
            begin = time.monotonic()
            status, _ = post("/v1/completions", {"model": MODEL, "prompt": f"Story {number}", "max_tokens": 1})
            self.assertEqual(status, 200)
            seconds.append(time.monotonic() - begin)

        threads = [threading.Thread(target=short, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(seconds), 20)  # all while the long one runs
        self.assertGreaterEqual(metric("deepinfer_requests_running"), 1)
        status, answer = post("/v1/chat/completions", ENDLESS, headers={"X-Request-Timeout-Ms": "300"})
        self.assertEqual((status, answer["error"]["type"]), (504, "timeout"))
        raw.connection.sock.shutdown(2)
        raw.close()

    def test_E21_prompts_that_can_never_run(self):
        huge = "word " * 300_000
        begin = time.monotonic()
        for _ in range(3):
            status, answer = post("/v1/completions", {"model": MODEL, "prompt": huge})
            self.assertEqual(status, 400)
            self.assertIn("16384", answer["error"]["message"])
        self.assertEqual(post("/v1/completions", {"model": MODEL, "prompt": "x", "max_tokens": 1})[0], 200)
        self.assertLess(time.monotonic() - begin, 60)

    def test_cache_is_shared_by_salt_alone(self):
        body = {"model": MODEL, "prompt": "salt " * 400, "max_tokens": 1}

        def cached(key):
            return post("/v1/completions", body, key=key)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]

        self.assertEqual(cached(BOB), 0)
        self.assertGreater(cached(BOB), 0)
