#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Property: whatever a client sends or leaves out, it gets one right answer per request or a closed connection, and the
server stays alive: /health answers, a plain request gives the same answer as before, and no stream is left running.

usage: http_test.py NULL_SERVER [unittest arguments]
The cases named after numbers are described in docs/server.md.
"""
import json
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from raw_http import Reader, Server, ask, get, metric, post, wait_until

PROGRAM = sys.argv.pop(1)
QUICK = ["--step-us=1000", "--header-seconds=1", "--body-seconds=2", "--idle-seconds=3", "--write-stall-seconds=2",
         "--heartbeat-seconds=0.5"]
STREAM = b'{"stream":true,"max_tokens":5}'
ENDLESS = b'{"stream":true,"max_tokens":1000000}'
PATH = "/v1/chat/completions"


class Case(unittest.TestCase):
    flags = []

    @classmethod
    def setUpClass(cls):
        cls.server = Server([PROGRAM], *QUICK, *cls.flags)
        cls.pid = cls.server.process.pid
        cls.before = cls.plain()

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, f"exit code {code}: {cls.server.log_text()[-2000:]}"

    @classmethod
    def plain(cls):
        answer = ask(cls.server, post(PATH, b"{}"))
        return answer.status, answer.body

    def tearDown(self):
        self.alive()

    def alive(self):
        self.assertEqual(ask(self.server, get("/health"), timeout=5).status, 200)
        self.assertIsNone(self.server.process.poll())
        self.assertEqual(self.plain(), self.before)
        wait_until(lambda: metric(self.server, "deepinfer_requests_running") == 0, what="streams are gone")
        wait_until(lambda: metric(self.server, "deepinfer_http_requests_open") == 1, what="requests are gone")

    def ask(self, data, **kw):
        return ask(self.server, data, **kw)


class Protocol(Case):
    def test_keep_alive_and_pipelining(self):
        with self.server.connect() as sock:
            sock.sendall(get("/health") + post(PATH, STREAM) + get("/v1/models") + post("/test/echo", b"abc") + get("/nope"))
            reader = Reader(sock)
            self.assertEqual(reader.answer().body, b'{"status":"ok"}')
            self.assertEqual(reader.answer().body.count(b"data: "), 6)
            self.assertIn(b'"list"', reader.answer().body)
            self.assertEqual(reader.answer().body, b"abc")
            self.assertEqual(reader.answer().status, 404)
            for _ in range(100):
                sock.sendall(get("/health"))
                self.assertEqual(reader.answer().status, 200)

    def test_many_pipelined_at_once(self):
        with self.server.connect() as sock:
            threading.Thread(target=lambda: sock.sendall(get("/v1/models") * 5000)).start()
            reader = Reader(sock)
            for _ in range(5000):
                self.assertEqual(reader.answer().status, 200)

    def test_request_ids_are_unique_C29(self):
        ids = set()
        for _ in range(20):
            answer = self.ask(get("/health", "X-Request-Id: same"))
            self.assertEqual(answer.header("x-request-id"), answer.header("request-id"))
            ids.add(answer.header("x-request-id"))
        self.assertEqual(len(ids), 20)

    def test_two_streams_with_one_client_id_C29(self):
        first, second = self.server.connect(), self.server.connect()
        first.sendall(post(PATH, ENDLESS, "X-Request-Id: same"))
        second.sendall(post(PATH, b'{"stream":true,"max_tokens":200}', "X-Request-Id: same"))
        Reader(first).until(b"data: ")
        first.close()
        self.assertEqual(Reader(second).answer().body.count(b"data: "), 201)
        second.close()

    def test_head(self):
        whole = self.ask(get("/v1/models"))
        head = self.ask(get("/v1/models").replace(b"GET", b"HEAD"), head_only=True)
        self.assertEqual(head.header("Content-Length"), str(len(whole.body)))
        with self.server.connect() as sock:
            sock.sendall(get("/v1/models").replace(b"GET", b"HEAD") + get("/health"))
            reader = Reader(sock)
            reader.answer(head_only=True)
            self.assertEqual(reader.answer().body, b'{"status":"ok"}')

    def test_http_1_0(self):
        with self.server.connect() as sock:
            sock.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            reader = Reader(sock)
            answer = reader.answer()
            self.assertEqual((answer.status, answer.header("Connection")), (200, "close"))
            self.assertTrue(reader.ended())
        with self.server.connect() as sock:
            sock.sendall(post(PATH, STREAM).replace(b"HTTP/1.1", b"HTTP/1.0"))
            answer = Reader(sock).answer()
            self.assertIsNone(answer.header("Transfer-Encoding"))
            self.assertTrue(answer.body.endswith(b"data: [DONE]\n\n"))
        with self.server.connect() as sock:
            sock.sendall(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" * 2)
            reader = Reader(sock)
            self.assertEqual([reader.answer().status, reader.answer().status], [200, 200])

    def test_connection_close(self):
        with self.server.connect() as sock:
            sock.sendall(get("/health", "Connection: close"))
            reader = Reader(sock)
            self.assertEqual(reader.answer().header("Connection"), "close")
            self.assertTrue(reader.ended())

    def test_absolute_target(self):
        self.assertEqual(self.ask(b"GET http://x/health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200)
        self.assertEqual(self.ask(b"GET http://x HTTP/1.1\r\nHost: x\r\n\r\n").status, 404)

    def test_chunked_request(self):
        head = b"POST /test/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        body = b"3;name=value\r\nabc\r\n1\r\n \r\n0000A\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n"
        with self.server.connect() as sock:
            for byte in head + body:
                sock.sendall(bytes([byte]))
            sock.sendall(get("/health"))
            reader = Reader(sock)
            self.assertEqual(reader.answer().body, b"abc 0123456789")
            self.assertEqual(reader.answer().status, 200)

    def test_expect_100_continue(self):
        with self.server.connect() as sock:
            sock.sendall(post("/test/echo", b"", "Expect: 100-continue", length=3))
            reader = Reader(sock)
            self.assertEqual(reader.until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue")
            sock.sendall(b"abc" + get("/health"))
            self.assertEqual(reader.answer().body, b"abc")
            self.assertEqual(reader.answer().status, 200)
        refused = self.ask(post("/nope", b"", "Expect: 100-continue", length=3))
        self.assertEqual((refused.status, refused.header("Connection")), (404, "close"))
        self.assertEqual(self.ask(post("/test/echo", b"", "Expect: 100-continue", length=10**12)).status, 413)
        self.assertEqual(self.ask(post("/test/echo", b"abc", "Expect: tea")).status, 417)

    def test_methods(self):
        answer = self.ask(post("/health", b""))
        self.assertEqual((answer.status, answer.header("Allow")), (405, "GET, HEAD"))
        for method in (b"OPTIONS", b"TRACE", b"CONNECT", b"BREW"):
            self.assertEqual(self.ask(get("/health").replace(b"GET", method)).status, 405)

    def test_unknown_paths_E10(self):
        for path in ("/", "/nope", "/../etc/passwd", "/v1/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/v1/models/..%2f", "//health",
                     "/health/", "/Health", "/health%00", "/.git/config", "/" + "a" * 5000):
            answer = self.ask(get(path))
            self.assertEqual(answer.status, 404, path)
            self.assertEqual(json.loads(answer.body)["error"]["type"], "invalid_request_error")

    def test_heartbeats_D18(self):
        with Server([PROGRAM], *QUICK[1:], "--step-us=1800000") as slow, slow.connect() as sock:
            sock.sendall(post(PATH, b'{"stream":true,"max_tokens":2}'))
            body = Reader(sock).answer().body
            self.assertGreaterEqual(body.count(b": keep-alive\n\n"), 2)
            self.assertEqual(body.count(b"data: "), 3)

    def test_handler_failures(self):
        self.assertEqual(self.ask(get("/test/throw")).status, 500)
        with self.server.connect() as sock:
            sock.sendall(get("/test/drop"))
            reader = Reader(sock)
            self.assertEqual(reader.head()[0], 200)
            with self.assertRaises((EOFError, ConnectionResetError)):
                while reader.chunk():
                    pass

    def test_metrics_E16(self):
        last = 0
        stop = threading.Event()

        def load():
            while not stop.is_set():
                ask(self.server, post(PATH, STREAM))

        thread = threading.Thread(target=load)
        thread.start()
        for _ in range(20):
            text = ask(self.server, get("/metrics")).body.decode()
            for line in text.splitlines():
                self.assertRegex(line, r"^(# (HELP|TYPE) \S+ .*|[a-z_]+(\{([a-z]+=\"[^\"]*\",?)*\})? [-+0-9.eInf]+)$")
            now = metric(self.server, "deepinfer_http_requests_total")
            self.assertGreaterEqual(now, last)
            last = now
        stop.set()
        thread.join()


class Framing(Case):
    """E08, and what else could make two parties disagree on where a request ends."""

    def two_answers_or_closed(self, first):
        with self.server.connect() as sock:
            sock.sendall(first + get("/health"))
            reader = Reader(sock)
            answer = reader.answer()
            self.assertGreaterEqual(answer.status, 400)
            if answer.header("Connection") == "close":
                self.assertTrue(reader.ended())
                return "closed"
            self.assertEqual(reader.answer().body, b'{"status":"ok"}')
            sock.settimeout(0.2)
            with self.assertRaises(TimeoutError):
                sock.recv(1)
            return "two"

    def test_unread_body_E08(self):
        inner = get("/v1/models")
        self.assertEqual(self.two_answers_or_closed(post("/nope", inner)), "two")
        self.assertEqual(self.two_answers_or_closed(post("/health", inner)), "two")
        chunked = b"POST /nope HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)
        self.assertEqual(self.two_answers_or_closed(chunked + chunks), "closed")
        self.assertEqual(self.two_answers_or_closed(post("/nope", inner * 2000)), "closed")

    def test_ambiguous_framing_E08(self):
        start = "POST /test/echo HTTP/1.1\r\nHost: x\r\n"
        for fields in (
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked, gzip\r\n",
            "Transfer-Encoding: identity\r\n",
            "Transfer-Encoding: xchunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding : chunked\r\n",
            "Transfer-Encoding:\r\n chunked\r\n",
            "Transfer-Encoding: chunked\r\n X: folded\r\n",
            "Content-Length: 3\r\nContent-Length: 4\r\n",
            "Content-Length: 3\r\nContent-Length: 3\r\n",
            "Content-Length: 3, 3\r\n",
            "Content-Length: -3\r\n",
            "Content-Length: +3\r\n",
            "Content-Length: 0x3\r\n",
            "Content-Length: 3 3\r\n",
            "Content-Length: 18446744073709551619\r\n",
            "Content-Length:\r\n",
            "Content-Length: 3\r\nX: a\r\n folded\r\n",
            "Content-Length: 3\nX: a\r\n",
            "Content-Length: 3\rX: a\r\n",
            "Content-Length: 3\r\nX\r\n",
            "Content-Length: 3\r\n: x\r\n",
            "Content-Length: 3\r\nX: a\x00b\r\n",
            "Content-Length: 3\r\nHost: y\r\n",
        ):
            request = (start + fields).encode("latin-1") + b"\r\nabc"
            self.assertEqual(self.two_answers_or_closed(request), "closed", fields)
        self.assertEqual(self.two_answers_or_closed(b"GET /health HTTP/1.1\r\n\r\n"), "closed")
        self.assertEqual(self.two_answers_or_closed(b"POST /test/echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "closed")

    def test_bad_chunks(self):
        head = b"POST /test/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        for body in (b"x\r\n", b"-1\r\n", b"3 \r\nabc", b"3\r\nabcd\r\n0\r\n\r\n", b"3\nabc\r\n0\r\n\r\n", b"10000000000000000\r\n",
                     b"ffffffffffffffff\r\n", b"\r\n", b"0x3\r\nabc\r\n\r\n", b"3;" + b"a" * 100000, b"1;a=b\r\na\r\n" * 200000):
            with self.server.connect() as sock:
                try:
                    sock.sendall(head + body)
                except OSError:
                    pass  # refused before all of it was sent
                self.assertIn(Reader(sock).answer().status, (400, 413), body[:20])

    def test_garbage(self):
        for data in (b"\r\n\r\n", b"\0" * 100, b"GET\r\n\r\n", b"GET /\r\n\r\n", b"GET / HTTP/3.0\r\n\r\n",
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                     b"GET  / HTTP/1.1\r\n\r\n",
                     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)),
                     b"GET /\x01 HTTP/1.1\r\n\r\n", bytes(range(256)) * 10):
            with self.server.connect() as sock:
                sock.sendall(data)
                self.assertIn(Reader(sock).answer().status, (400, 505), data[:20])

    def test_pipelined_garbage(self):
        with self.server.connect() as sock:
            sock.sendall(get("/health") + b"\x00\xff garbage\r\n\r\n" + get("/health"))
            reader = Reader(sock)
            self.assertEqual(reader.answer().status, 200)
            self.assertEqual(reader.answer().status, 400)
            self.assertTrue(reader.ended())
        with self.server.connect() as sock:  # behind a stream: answered after it
            sock.sendall(post(PATH, STREAM) + b"\x00 garbage" * 10000)
            reader = Reader(sock)
            self.assertEqual(reader.answer().body.count(b"data: "), 6)
            self.assertEqual(reader.answer().status, 400)

    def test_random_bytes(self):
        random.seed(6)
        good = post("/test/echo", b"abc", "X-A: b")
        good += b"POST /test/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
        for _ in range(300):
            data = bytearray(good)
            for _ in range(random.randint(1, 4)):
                data[random.randrange(len(data))] = random.randrange(256)
            with self.server.connect() as sock:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                reader = Reader(sock)
                try:
                    while True:
                        reader.answer()
                except (EOFError, ConnectionResetError):
                    pass


class Limits(Case):
    flags = ["--body-bytes-max=8388608", "--header-bytes-max=16384", "--stream-buffer-bytes-max=65536"]

    def test_bodies_E05(self):
        for size in (50_000, 1 << 20, 8 << 20):
            body = random.randbytes(size)
            self.assertEqual(self.ask(post("/test/echo", body)).body, body)
        self.assertEqual(self.ask(post("/test/echo", b"", length=(8 << 20) + 1)).status, 413)
        self.assertEqual(self.ask(post("/test/echo", b"", length=10**12)).status, 413)
        self.assertEqual(self.ask(post(PATH, b"\x1f\x8b\x08" + b"\0" * 100, "Content-Encoding: gzip")).status, 400)

    def test_100_mb_body(self):
        with self.server.connect() as sock:
            sent = 0
            try:
                sock.sendall(post("/test/echo", b"", length=100 << 20))
                while sent < 100 << 20:
                    sent += sock.send(b"x" * 65536)
            except OSError:
                pass
            self.assertLess(sent, 60 << 20)
            self.assertEqual(Reader(sock).answer().status, 413)

    def test_endless_chunks_E05(self):
        with self.server.connect() as sock:
            sent = 0
            try:
                sock.sendall(b"POST /test/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
                while sent < 100 << 20:
                    sock.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                    sent += 65536
            except OSError:
                pass
            self.assertLess(sent, 60 << 20)
            self.assertEqual(Reader(sock).answer().status, 413)

    def test_header_bombs(self):
        bombs = [get("/health", "X: " + "a" * 20000), get("/health", *(f"X{i}: {i}" for i in range(1000))), get("/" + "a" * 20000),
                 get("/health", *("X: " + "a" * 1000 for _ in range(100))), b"A" * 100000, get("/health", "a" * 20000 + ": x")]
        for bomb in bombs:
            with self.server.connect() as sock:
                try:
                    sock.sendall(bomb)
                except OSError:
                    pass
                self.assertIn(Reader(sock).answer().status, (400, 431), bomb[:60])
        with self.server.connect() as sock:  # a field at a time
            with self.assertRaises(OSError):
                sock.sendall(b"GET /health HTTP/1.1\r\n")
                for i in range(100_000):
                    sock.sendall(b"X%d: %s\r\n" % (i, b"a" * 100))

    def test_slowloris(self):
        with self.server.connect() as sock:
            sock.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
            with self.assertRaises(OSError):
                for _ in range(1200):  # a minute
                    sock.sendall(b"X: y\r\n")
                    time.sleep(0.05)

    def test_slow_header_and_body_get_408(self):
        for start in (b"GET /hea", post("/test/echo", b"ab", length=3)):
            with self.server.connect() as sock:
                sock.sendall(start)
                self.assertEqual(Reader(sock).answer().status, 408)

    def test_idle_connections_are_closed(self):
        with self.server.connect() as sock:
            begin = time.monotonic()
            self.assertTrue(Reader(sock).ended(10))
            self.assertGreater(time.monotonic() - begin, 2)

    def test_slow_reader_is_cut_off_alone(self):
        with Server([PROGRAM], "--step-us=1000", "--stream-buffer-bytes-max=65536", "--write-stall-seconds=600") as server:
            slow = socket.socket()
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", server.port))
            slow.sendall(post(PATH, b'{"stream":true,"max_tokens":100000000,"burst":20}'))
            with server.connect(60) as other:
                other.sendall(post(PATH, b'{"stream":true,"max_tokens":500}'))
                self.assertEqual(Reader(other).answer().body.count(b"data: "), 501)
            wait_until(lambda: metric(server, "deepinfer_http_clients_cut_off_total") == 1, what="cut off by size")
            wait_until(lambda: metric(server, "deepinfer_requests_running") == 0, what="and its work ended")
            with self.assertRaises((EOFError, ConnectionResetError)):
                Reader(slow).answer()
            slow.close()

    def test_stalled_reader_is_cut_off(self):
        with Server([PROGRAM], "--step-us=1000", "--stream-buffer-bytes-max=4294967296", "--write-stall-seconds=1") as server:
            with server.connect() as slow:
                slow.sendall(post(PATH, b'{"stream":true,"max_tokens":100000000,"burst":20}'))
                wait_until(lambda: metric(server, "deepinfer_http_clients_cut_off_total") == 1, what="cut off by time")
                wait_until(lambda: metric(server, "deepinfer_requests_running") == 0, what="and its work ended")

    def test_reader_of_a_whole_answer_that_stalls(self):
        with self.server.connect() as sock:
            sock.sendall(get("/test/bytes?n=30000000"))
            time.sleep(3.5)
            with self.assertRaises((EOFError, ConnectionResetError)):
                Reader(sock).answer()
        self.assertEqual(len(self.ask(get("/test/bytes?n=30000000")).body), 30_000_000)

    def test_worker_queue_E05(self):
        with Server([PROGRAM], *QUICK, "--worker-threads=1", "--worker-queue-max=2") as small:
            socks = [small.connect() for _ in range(10)]
            for sock in socks:
                sock.sendall(get("/test/wait?ms=300"))
            answers = [Reader(sock).answer() for sock in socks]
            statuses = [answer.status for answer in answers]
            self.assertGreaterEqual(statuses.count(200), 2)
            self.assertGreaterEqual(statuses.count(503), 6)
            self.assertTrue(all(a.header("Retry-After") for a in answers if a.status == 503))
            for sock in socks:
                sock.close()

    def test_connections_and_body_memory(self):
        with Server([PROGRAM], *QUICK, "--idle-seconds=60", "--connections-max=5", "--body-memory-bytes-max=1000000") as small:
            held = [small.connect() for _ in range(4)]
            self.assertEqual(ask(small, post("/test/echo", b"x" * 2_000_000)).status, 503)

            def take_the_last_place():
                held.append(small.connect())
                held[-1].sendall(get("/health"))
                return Reader(held[-1]).answer().status == 200

            wait_until(take_the_last_place)
            answer = Reader(small.connect()).answer()
            self.assertEqual((answer.status, answer.header("Retry-After")), (503, "1"))
            for sock in held:
                sock.close()
            wait_until(lambda: ask(small, get("/health")).status == 200, what="places are free again")


class Faults(Case):
    def test_close_at_any_byte(self):
        request = post(PATH, b'{"stream":true,"max_tokens":50}')
        for cut in range(0, len(request) + 1, 1):
            with self.server.connect() as sock:
                sock.sendall(request[:cut])
                if cut % 2:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def test_close_at_any_byte_of_the_answer(self):
        request = post(PATH, b'{"stream":true,"max_tokens":20}')
        for cut in range(1, 2000, 37):
            with self.server.connect() as sock:
                sock.sendall(request)
                Reader(sock).exactly(cut)

    def test_half_closed(self):
        with self.server.connect() as sock:  # nothing to wait for: answered
            sock.sendall(get("/health"))
            sock.shutdown(socket.SHUT_WR)
            reader = Reader(sock)
            self.assertEqual(reader.answer().status, 200)
            self.assertTrue(reader.ended())
        with self.server.connect() as sock:  # within a stream: gone
            sock.sendall(post(PATH, ENDLESS))
            Reader(sock).until(b"data: ")
            sock.shutdown(socket.SHUT_WR)
            wait_until(lambda: metric(self.server, "deepinfer_requests_running") == 0, 2, "the stream ends")

    def test_vanished_client_is_noticed_at_once(self):
        with self.server.connect() as sock:
            sock.sendall(post(PATH, ENDLESS))
            Reader(sock).until(b"data: ")
        wait_until(lambda: metric(self.server, "deepinfer_requests_running") == 0, 1, "the stream ends")

    def test_mass_aborts_E14(self):
        random.seed(14)
        for _ in range(3):
            socks = []
            for _ in range(300):
                sock = self.server.connect()
                sock.sendall(post(PATH, ENDLESS))
                socks.append((time.monotonic() + random.random() * 0.2, sock))
            for at, sock in sorted(socks, key=lambda pair: pair[0]):
                time.sleep(max(0, at - time.monotonic()))
                sock.close()
        wait_until(lambda: metric(self.server, "deepinfer_requests_running") == 0, 5, "all streams end")

    def test_invalid_json_at_any_cut(self):
        body = b'{"model":"m","messages":[{"role":"user","content":"h\\u00e9\xc3\xa9 \xf0\x9f\x98\x80"}],"n":-1.5e3,"x":[true,null]}'
        self.assertEqual(self.ask(post(PATH, body)).status, 200)
        with self.server.connect() as sock:
            reader = Reader(sock)
            for cut in range(len(body)):
                sock.sendall(post(PATH, body[:cut]))
                self.assertEqual(reader.answer().status, 400, cut)

    def test_invalid_utf8_and_odd_json_E22(self):
        with self.server.connect() as sock:
            reader = Reader(sock)
            for body in (b"", b"null", b"[]", b"{} x", b'{"a":1,}', b"{'a':1}", b'{"a":NaN}',
                         b'{"a":"\xff"}', b'{"a":"\xc3"}', b'{"a":"\xed\xa0\x80"}',
                         b"\xef\xbb\xbf{}",
                         b'{"a":"\\ud800"}', b"[" * 100000, b'{"a":' * 10000, b"/**/{}", b"a=1&b=2", b"\0"):
                sock.sendall(post(PATH, body))
                answer = reader.answer()
                self.assertEqual(answer.status, 400, body[:20])
                json.loads(answer.body)

    def test_many_half_open_connections(self):
        socks = [self.server.connect() for _ in range(200)]
        for i, sock in enumerate(socks):
            sock.sendall(post(PATH, STREAM)[: i % 100])
        self.assertEqual(self.ask(get("/health"), timeout=2).status, 200)
        for sock in socks:
            sock.close()


if __name__ == "__main__":
    unittest.main(verbosity=1)
