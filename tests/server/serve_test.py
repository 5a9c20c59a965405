#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Property: what the transport promises holds for the program with its bundled model too: after each fault /health answers, the
process is the same, a plain request gives the same answer, and running, waiting and the cache's blocks are back at their start.

usage: [DEEPINFER_ACCELERATOR=cuda] serve_test.py DEEPINFER [unittest arguments]
"""
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from raw_http import Reader, Server, ask, get, metric, post, wait_until

PROGRAM = sys.argv.pop(1)
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


def chat(text="What is 3 + 4?", **more):
    body = {"model": "deepseek-v41-tiny", "temperature": 0, "max_tokens": 24, "messages": [{"role": "user", "content": text}], **more}
    return post(CHAT, json.dumps(body).encode())


def endless(text="Tell me a story."):
    return chat(text, stream=True, max_tokens=10_000, temperature=1.0, seed=1, logit_bias={"1": -100})


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server([PROGRAM, "serve"], "--header-seconds=2", "--drain-seconds=20", "--body-bytes-max=8388608",
                            "--requests-waiting-max=20")
        cls.blocks = metric(cls.server, "deepinfer_cache_blocks_available")
        cls.before = cls.plain()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, f"exit code {code}: {cls.server.log_text()[-2000:]}"

    @classmethod
    def plain(cls):
        answer = json.loads(ask(cls.server, chat(), timeout=60).body)
        return answer["choices"][0]["message"], answer["choices"][0]["finish_reason"]

    def tearDown(self):
        self.assertEqual(ask(self.server, get("/health"), timeout=5).status, 200)
        self.assertIsNone(self.server.process.poll())
        self.assertEqual(self.plain(), self.before)
        for name, value in (("deepinfer_requests_running", 0), ("deepinfer_requests_waiting", 0), ("deepinfer_http_requests_open", 1),
                            ("deepinfer_cache_blocks_available", self.blocks)):
            wait_until(lambda n=name, v=value: metric(self.server, n) == v, what=f"{name} is {value}")

    def test_client_closes_at_any_byte(self):
        request = chat(stream=True)
        for cut in range(0, len(request) + 1, 5):
            with self.server.connect() as sock:
                sock.sendall(request[:cut])
        for cut in range(1, 3000, 211):
            with self.server.connect() as sock:
                sock.sendall(request)
                try:
                    Reader(sock).exactly(cut)
                except EOFError:
                    self.fail("the answer is cut")
                except TimeoutError:
                    break  # it was shorter

    def test_mass_aborts_E14(self):
        random.seed(14)
        socks = []
        for i in range(150):  # more than there is room for
            sock = self.server.connect()
            sock.sendall(endless(f"Tell me story {i % 7}."))
            socks.append((time.monotonic() + random.random() * 0.2, sock))
        for at, sock in sorted(socks, key=lambda pair: pair[0]):
            time.sleep(max(0, at - time.monotonic()))
            sock.close()

    def test_a_full_queue_is_429(self):
        socks = [self.server.connect(30) for _ in range(200)]
        for sock in socks:
            sock.sendall(endless())
        heads = [(status, {k.lower(): v for k, v in headers}) for status, headers in (Reader(sock).head() for sock in socks)]
        statuses = [status for status, _ in heads]
        self.assertEqual(set(statuses), {200, 429})
        self.assertGreaterEqual(statuses.count(200), 20)
        self.assertTrue(all(int(headers["retry-after"]) >= 1 for status, headers in heads if status == 429))
        for sock in socks:
            sock.close()

    def test_vanished_client_frees_its_request(self):
        with self.server.connect() as sock:
            sock.sendall(endless())
            Reader(sock).until(b"data: ")
        wait_until(lambda: metric(self.server, "deepinfer_requests_running") == 0, 5)

    def test_invalid_bodies_in_each_protocol(self):
        for path, kind in ((CHAT, "error"), (MESSAGES, "error"), ("/v1/responses", "error"), ("/v1/completions", "error")):
            with self.server.connect() as sock:
                reader = Reader(sock)
                for body in (b"", b"null", b"[]", b"{}", b'{"model":', b"\xff", b"[" * 100_000,
                             b'{"model":"deepseek-v41-tiny","messages":"\xff"}'):
                    sock.sendall(post(path, body))
                    answer = reader.answer()
                    self.assertEqual(answer.status, 400, (path, body[:20], answer.body))
                    self.assertIn(kind, json.loads(answer.body))

    def test_large_bodies_E05(self):
        self.assertEqual(ask(self.server, post(CHAT, b"", length=100 << 20)).status, 413)
        self.assertEqual(json.loads(ask(self.server, post(MESSAGES, b"", length=100 << 20)).body)["type"], "error")
        answer = ask(self.server, chat("a " * 1_000_000), timeout=60)
        self.assertEqual(answer.status, 400, answer.body)

    def test_the_dashboard_and_the_page_show_what_there_is(self):
        ask(self.server, chat(), timeout=60)
        text = ask(self.server, get("/metrics")).body.decode()
        known = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
        root = pathlib.Path(__file__).resolve().parent.parent.parent
        for file in ("packaging/grafana/deepinfer.json", "src/server/pages/static/status.js"):
            for name in set(re.findall(r"deepinfer_[a-z_]+", (root / file).read_text())):
                self.assertIn(name.removesuffix("_bucket"), known, file)

    def test_numbers_of_drafts(self):
        """Drafts as they pay, which the engine first has to find out: some are made, verified and accepted, and what it expects
        of them is a number."""
        for seed in range(4):
            ask(self.server, chat("Tell me a story.", max_tokens=200, temperature=0.5, seed=seed), timeout=60)
        made, verified, accepted = (metric(self.server, f"deepinfer_drafts_{what}_total") for what in ("made", "verified", "accepted"))
        self.assertGreaterEqual(made, verified)
        self.assertGreater(verified, accepted)
        self.assertGreater(accepted, 0)
        self.assertGreater(metric(self.server, "deepinfer_draft_gain"), 0)
        self.assertGreater(metric(self.server, "deepinfer_draft_calibration_error"), 0)
        self.assertLess(metric(self.server, "deepinfer_draft_calibration_error"), 0.5)
        self.assertGreater(metric(self.server, "deepinfer_draft_schedule_seconds_total"), 0)

    def test_unknown_paths_E10(self):
        for path in ("/v1/responses/..%2f..%2fetc%2fpasswd", "/v1/models/../../etc/passwd", "/chat.js/..", "/static/../../x",
                     "/v1/responses/" + "a" * 5000):
            self.assertEqual(ask(self.server, get(path)).status, 404, path)
        self.assertEqual(ask(self.server, get(CHAT)).header("Allow"), "POST")


class Stopping(unittest.TestCase):
    def test_term_under_load(self):
        server = Server([PROGRAM, "serve"], "--drain-seconds=60")
        answers, stop = [], threading.Event()

        def load(number):
            while not stop.is_set():
                try:
                    answers.append(ask(server, chat(f"Count to {number}.", stream=number % 2 == 0), timeout=60))
                except OSError:
                    return

        threads = [threading.Thread(target=load, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(answers) >= 12, 60)
        self.assertEqual(server.stop(timeout=90), 0)
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual({answer.status for answer in answers} - {200, 503}, set())
        for answer in answers:
            if answer.status == 200 and answer.header("Content-Type") == "text/event-stream":
                self.assertTrue(answer.body.endswith(b"data: [DONE]\n\n"))
        self.assertIn('"drained":true', server.log_text())

    def test_kill_and_restart(self):
        server = Server([PROGRAM, "serve"])
        first = json.loads(ask(server, chat(), timeout=60).body)["choices"]
        sock = socket.create_connection(("127.0.0.1", server.port))
        sock.sendall(endless())
        Reader(sock).until(b"data: ")
        server.stop(signal.SIGKILL)
        with Server([PROGRAM, "serve"], port=server.port) as again:
            self.assertEqual(json.loads(ask(again, chat(), timeout=60).body)["choices"], first)
        sock.close()

    def test_a_constrained_answer_moves_to_another_worker_B40(self):
        """The first worker is killed in mid-answer; the second goes on behind what the client has, as a message to continue."""
        properties = {name: {"type": "string", "minLength": 12, "maxLength": 40} for name in "abcd"}
        schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
        form = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}},
                "thinking": {"type": "disabled"}, "temperature": 1, "max_tokens": 400}
        with Server([PROGRAM, "serve"]) as second:
            for seed, pieces in enumerate((1, 3, 8, 20)):
                first, begun = Server([PROGRAM, "serve"]), ""
                with first.connect(60) as sock:
                    sock.sendall(chat("Write.", stream=True, seed=seed, **form))
                    reader = Reader(sock)
                    while pieces > 0:
                        line = reader.until(b"\n\n").split(b"data: ")[-1]
                        piece = json.loads(line)["choices"][0]["delta"].get("content") if line.startswith(b"{") else None
                        begun += piece or ""
                        pieces -= bool(piece)
                    first.stop(signal.SIGKILL)
                messages = [{"role": "user", "content": "Write."}, {"role": "assistant", "content": begun, "prefix": True}]
                answer = ask(second, chat(messages=messages, seed=seed, **form), timeout=60)
                self.assertEqual(answer.status, 200, answer.body)
                choice = json.loads(answer.body)["choices"][0]
                self.assertEqual(choice["finish_reason"], "stop")
                value = json.loads(begun + choice["message"]["content"])
                self.assertEqual(list(value), list(properties))
                self.assertTrue(all(12 <= len(text) <= 40 for text in value.values()), value)

    def test_how_answers_are_written(self):
        schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"type": "string"}}, "required": ["b", "a"]}
        more = {"thinking": {"type": "disabled"}, "max_tokens": 200, "guided_json": schema, "temperature": 1}
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('[answers]\njson-blanks = "none"\njson-key-order = "free"\njson-closed-objects = true\n')
            file.write("json-max-length-default = 3\n")
            file.flush()
            with Server([PROGRAM, "serve"], f"--config={file.name}") as server:
                for seed in range(4):
                    answer = json.loads(ask(server, chat(seed=seed, **more), timeout=60).body)
                    text = answer["choices"][0]["message"]["content"]
                    value = json.loads(text)
                    self.assertEqual(text, json.dumps(value, separators=(",", ":"), ensure_ascii=False))
                    self.assertEqual(set(value), {"a", "b"})
                    self.assertLessEqual(len(value["b"]), 3)
        for flag, part in (("--json-blanks=some", "json-blanks: expected usual, any or none"), ("--json-key-order=x", "json-key-order: "),
                           ("--json-max-items-default=-1", "json-max-items-default: ")):
            done = subprocess.run([PROGRAM, "serve", "--port=0", flag], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn(part, done.stderr)

    def test_full_log_disk(self):
        with Server([PROGRAM, "serve"], "--log-file=/dev/full") as server:
            for _ in range(20):
                self.assertEqual(ask(server, chat(max_tokens=2), timeout=60).status, 200)
            wait_until(lambda: metric(server, "deepinfer_log_lines_dropped_total") >= 20)


def skip_without_accelerator():
    """Where this machine lacks the backend that is asked for: says why, and ends with what ctest takes for a skipped test."""
    if os.environ.get("DEEPINFER_ACCELERATOR") == "cuda":
        done = subprocess.run([PROGRAM, "generate", "--max-tokens=1", "x"], capture_output=True, text=True, timeout=60)
        if done.returncode == 1 and "CUDA: " in done.stderr:
            print("skipped:", done.stderr.strip())
            sys.exit(77)


if __name__ == "__main__":
    skip_without_accelerator()
    unittest.main(verbosity=1)
