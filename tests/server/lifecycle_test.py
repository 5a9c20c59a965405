#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Property: a server starts, stops, restarts and keeps its secrets as docs/server.md says, whatever becomes of its log.

usage: lifecycle_test.py NULL_SERVER [unittest arguments]
"""
import hashlib
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from raw_http import Reader, Server, ask, get, metric, post, wait_until

PROGRAM = sys.argv.pop(1)
PATH = "/v1/chat/completions"
SECRET = "sk-correct-horse-battery-staple"
OTHER = "sk-another-secret-of-some-length"


def stream(tokens):
    return post(PATH, b'{"stream":true,"max_tokens":%d}' % tokens)


def start(*flags, **kw):
    return Server([PROGRAM], "--step-us=2000", *flags, **kw)


class Load:
    """Clients that ask without pause and note what became of it."""

    def __init__(self, server, clients=8):
        self.server, self.whole, self.cut, self.stop = server, 0, 0, False
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self):
        while not self.stop:
            try:
                with self.server.connect() as sock:
                    sock.sendall(stream(50))
                    reader = Reader(sock)
                    status, _ = reader.head()
                    if status != 200:
                        continue
                    data = b""
                    while piece := reader.chunk():
                        data += piece
                    assert data.endswith(b"data: [DONE]\n\n") and data.count(b'"at":') == 50
                    self.whole += 1
            except ConnectionRefusedError:
                return
            except (OSError, EOFError):
                self.cut += 1

    def finish(self):
        self.stop = True
        for thread in self.threads:
            thread.join()


class Stopping(unittest.TestCase):
    def test_term_under_load(self):
        server = start("--drain-seconds=20")
        load = Load(server)
        wait_until(lambda: load.whole > 10, 20)
        self.assertEqual(server.stop(), 0)
        load.finish()
        self.assertIn('"event":"stopped","drained":true', server.log_text())
        # A connection that was accepted but had not sent its request may be closed; no answer that began is cut.
        answered = [json.loads(line) for line in server.log_text().splitlines() if '"event":"request"' in line]
        self.assertEqual([line for line in answered if line["status"] not in (200, 503)], [])

    def test_term_waits_no_longer_than_told(self):
        server = start("--drain-seconds=1")
        with server.connect() as sock:
            sock.sendall(stream(1_000_000))
            Reader(sock).until(b"data: ")
            begin = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - begin, 6)
        self.assertIn('"drained":false', server.log_text())

    def test_second_signal_stops_at_once(self):
        server = start("--drain-seconds=600")
        with server.connect() as sock:
            sock.sendall(stream(1_000_000))
            Reader(sock).until(b"data: ")
            server.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            self.assertIsNone(server.process.poll())
            self.assertEqual(server.stop(signal.SIGINT), 0)

    def test_while_draining(self):
        server = start("--drain-seconds=20")
        with server.connect() as running, server.connect() as idle, server.connect() as busy:
            running.sendall(stream(700))
            reader = Reader(running)
            reader.until(b"data: ")
            busy.sendall(get("/hea")[:8])  # within a request
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            self.assertTrue(Reader(idle).ended())
            with self.assertRaises(ConnectionRefusedError):
                while True:
                    server.connect().close()
                    time.sleep(0.01)
            busy.sendall(b"lth HTTP/1.1\r\nHost: x\r\n\r\n")
            late = Reader(busy).answer()
            self.assertEqual((late.status, late.header("Retry-After"), late.header("Connection")), (503, "1", "close"))
            reader.until(b"data: [DONE]")
        self.assertEqual(server.process.wait(20), 0)
        server.process.stdout.close()

    def test_kill_and_restart(self):
        server = start()
        load = Load(server, 4)
        wait_until(lambda: load.whole > 3, 20)
        server.stop(signal.SIGKILL)
        load.finish()
        with start(port=server.port) as again:
            self.assertEqual(again.port, server.port)
            self.assertEqual(ask(again, get("/health")).status, 200)

    def test_port_in_use_is_told(self):
        with start() as server:
            done = subprocess.run([PROGRAM, f"--port={server.port}"], capture_output=True, timeout=20)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"127.0.0.1:{server.port}", done.stderr.decode())


class Logs(unittest.TestCase):
    def serves(self, server, requests=300):
        with server.connect() as sock:
            reader = Reader(sock)
            for _ in range(requests):
                sock.sendall(get("/health"))
                self.assertEqual(reader.answer().status, 200)

    def test_full_disk_E18(self):
        with start("--log-file=/dev/full") as server:
            self.serves(server)
            wait_until(lambda: metric(server, "deepinfer_log_lines_dropped_total") > 100)
            self.serves(server)

    def test_full_disk_that_has_room_again(self):
        with tempfile.TemporaryDirectory() as folder:
            if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True).returncode != 0:
                self.skipTest("no right to mount a small disk")
            try:
                log = pathlib.Path(folder, "log")
                with start(f"--log-file={log}") as server:
                    self.serves(server, 1000)
                    wait_until(lambda: metric(server, "deepinfer_log_lines_dropped_total") > 0)
                    os.truncate(log, 0)
                    self.serves(server, 20)
                    wait_until(lambda: "log_lines_dropped" in log.read_text(), what="the loss is told")
            finally:
                subprocess.run(["umount", "-l", folder], check=True)

    def test_unread_pipe_E18(self):
        read_end, write_end = os.pipe()
        server = start(stderr=write_end)
        with server.connect() as sock:
            reader = Reader(sock)
            for _ in range(100):  # more lines than pipe and buffer hold
                sock.sendall(get("/health") * 150)
                for _ in range(150):
                    self.assertEqual(reader.answer().status, 200)
        self.assertGreater(metric(server, "deepinfer_log_lines_dropped_total"), 0)
        self.assertEqual(server.stop(), 0)
        os.close(read_end)
        os.close(write_end)

    def test_broken_pipe_and_closed_stderr_E18(self):
        read_end, write_end = os.pipe()
        with start(stderr=write_end) as server:
            os.close(read_end)
            os.close(write_end)
            self.serves(server)
        closed = subprocess.Popen(["sh", "-c", f"exec {PROGRAM} --port=0 2>&-"], stdout=subprocess.PIPE)
        port = int(closed.stdout.readline().decode().rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(get("/health"))
            self.assertEqual(Reader(sock).answer().status, 200)
        closed.terminate()
        self.assertEqual(closed.wait(20), 0)
        closed.stdout.close()

    def test_lines_are_json_and_hold_what_is_promised(self):
        with start() as server:
            ask(server, get("/v1/models?api_key=secret-in-the-query", 'X-Request-Id: a"b\u00e9'.encode().decode("latin-1")))
            wait_until(lambda: '"event":"request"' in server.log_text())
            lines = [json.loads(line) for line in server.log_text().splitlines()]
        self.assertEqual([line["event"] for line in lines[:3]], ["configuration", "listening", "request"])
        self.assertEqual((lines[2]["method"], lines[2]["path"], lines[2]["status"]), ("GET", "/v1/models", 200))
        self.assertTrue(lines[2]["id"].startswith("req_"))
        self.assertNotIn("secret-in-the-query", server.log_text())


class Keys(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.file = tempfile.NamedTemporaryFile("w", suffix=".toml")
        digest = hashlib.sha256(OTHER.encode()).hexdigest()
        cls.file.write(f'[[key]]\nname = "first"\nsecret = "{SECRET}"\nrequests-open-max = 2\n')
        cls.file.write(f'[[key]]\nname = "second"\nsha256 = "{digest}"\nisolated-cache = true\n')
        cls.file.flush()
        cls.server = start(f"--keys-file={cls.file.name}", "--cors-origin=https://page.example")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.file.close()

    def test_with_a_key(self):
        for fields in (f"Authorization: Bearer {SECRET}", f"authorization: bearer {SECRET}", f"x-api-key: {OTHER}"):
            self.assertEqual(ask(self.server, get("/v1/models", fields)).status, 200)
        both = (f"Authorization: Bearer {SECRET}", "X-Api-Key: wrong")
        self.assertEqual(ask(self.server, get("/v1/models", *both)).status, 200)

    def test_without_a_key_E11(self):
        shapes = set()
        wrong = ([], ["Authorization: Bearer"], ["Authorization: Bearer wrong"], [f"Authorization: Basic {SECRET}"],
                 [f"x-api-key: {SECRET}x"],
                 [f"x-api-key: {SECRET[:-1]}"], ["x-api-key: "], ["x-api-key: " + "a" * 10000], [f"Authorization: Bearer  {SECRET}"])
        paths = ("/v1/models", "//v1/models", "/v1/../v1/models", "/V1/models", "/v1/models/", "/v1/%6dodels", "/metrics",
                 "/test/throw", "/admin")
        for path in paths:
            for fields in wrong if path == "/v1/models" else wrong[:1]:
                for method in (b"GET", b"POST", b"OPTIONS", b"DELETE"):
                    answer = ask(self.server, get(path, *fields).replace(b"GET", method))
                    self.assertEqual(answer.status, 401, (method, path, fields))
                    headers = {k: v for k, v in answer.headers if k not in ("Date", "x-request-id", "request-id")}
                    shapes.add((tuple(sorted(headers.items())), answer.body))
        self.assertEqual(len(shapes), 1)
        absolute = ask(self.server, b"GET http://x/v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertEqual(absolute.status, 401)
        upgrade = get("/v1/models", "Connection: Upgrade", "Upgrade: websocket")
        self.assertEqual(ask(self.server, upgrade).status, 401)
        self.assertEqual(ask(self.server, get("/health")).status, 200)

    def test_a_body_without_a_key_is_not_waited_for(self):
        self.assertEqual(ask(self.server, post(PATH, b"", length=60 << 20)).status, 401)

    def test_limit_of_open_requests(self):
        socks = [self.server.connect() for _ in range(3)]
        for sock in socks[:2]:
            sock.sendall(post(PATH, b'{"stream":true,"max_tokens":100000}', f"x-api-key: {SECRET}"))
            Reader(sock).until(b"data: ")
        socks[2].sendall(get("/v1/models", f"x-api-key: {SECRET}"))
        answer = Reader(socks[2]).answer()
        self.assertEqual((answer.status, answer.header("Retry-After")), (429, "1"))
        self.assertEqual(ask(self.server, get("/v1/models", f"x-api-key: {OTHER}")).status, 200)
        for sock in socks:
            sock.close()
        wait_until(lambda: ask(self.server, get("/v1/models", f"x-api-key: {SECRET}")).status == 200)

    def test_no_secret_in_the_log(self):
        ask(self.server, get("/v1/models", "x-api-key: sk-wrong-but-still-secret"))
        ask(self.server, get("/v1/models", f"x-api-key: {SECRET}"))
        wait_until(lambda: '"key":"first"' in self.server.log_text())
        text = self.server.log_text()
        for secret in (SECRET, OTHER, "sk-wrong-but-still-secret"):
            self.assertNotIn(secret, text)
        self.assertNotIn(SECRET.encode(), pathlib.Path(f"/proc/{self.server.process.pid}/cmdline").read_bytes())

    def test_cors(self):
        page, stranger = "Origin: https://page.example", "Origin: https://other.example"
        asked = (page, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization, content-type")
        answer = ask(self.server, get(PATH, *asked).replace(b"GET", b"OPTIONS"))
        self.assertEqual((answer.status, answer.header("Access-Control-Allow-Origin")), (204, "https://page.example"))
        self.assertIn("Authorization", answer.header("Access-Control-Allow-Headers"))
        self.assertEqual(ask(self.server, get("/health", page)).header("Access-Control-Allow-Origin"), "https://page.example")
        self.assertIsNone(ask(self.server, get("/health", stranger)).header("Access-Control-Allow-Origin"))
        self.assertIsNone(ask(self.server, get("/health")).header("Access-Control-Allow-Origin"))


class Files(unittest.TestCase):
    def refused(self, text, flag="--config"):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            done = subprocess.run([PROGRAM, "--port=0", f"{flag}={file.name}"], capture_output=True, timeout=20)
            self.assertEqual(done.returncode, 1, text)
            return done.stderr.decode().replace(file.name, "FILE")

    def test_file_and_flags(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write('[server]\nport = 1\ncors-origin = ["https://a", "https://b"]\n'
                       '[limits]\nidle-seconds = 7\nbody-bytes-max = 100\n')
            file.flush()
            with start(f"--config={file.name}", "--body-bytes-max=10") as server:
                self.assertEqual(ask(server, post("/test/echo", b"12345678901")).status, 413)
        line = json.loads(server.log_text().splitlines()[0])  # a thread writes it: it is surely there when the server has ended
        self.assertEqual((line["port"], line["idle-seconds"], line["body-bytes-max"]), (0, 7, 10))
        self.assertEqual(line["cors-origin"], ["https://a", "https://b"])

    def test_bad_settings_name_the_place(self):
        self.assertIn("FILE:2", self.refused("[server]\nprot = 1\n"))
        self.assertIn("prot", self.refused("[server]\nprot = 1\n"))
        self.assertIn("FILE:2: host: expected a string", self.refused("[server]\nhost = 1\n"))
        self.assertIn("expected a bare number", self.refused('[limits]\nidle-seconds = "7"\n'))
        self.assertIn("whole number", self.refused("[server]\nio-threads = 1.5\n"))
        self.assertIn("expected 1..256", self.refused("[server]\nio-threads = 0\n"))
        self.assertIn("FILE:1", self.refused("[server\n"))
        self.assertIn("expected the tables", self.refused("port = 1\n"))
        self.assertIn("IPv4 or IPv6", self.refused('[server]\nhost = "no such host"\n'))
        self.assertIn("both a certificate", self.refused('[server]\ntls-key-file = "x"\n'))

    def test_bad_keys_do_not_quote_the_secret(self):
        for text in ('[[key]]\nname = "a"\nsecret = "sk-hidden', '[[key]]\nname = "a"\nsecret = "sk-hidden"\n',
                     '[[key]]\nsecret = "sk-hidden-long-enough-1"\n',
                     '[[key]]\nname = "a"\nsecrte = "sk-hidden-long-enough-1"\n', '[[key]]\nname = "a"\nsha256 = "sk-hidden"\n', "",
                     "[key]\nname = 1\n",
                     '[[key]]\nname = "a"\nsecret = "sk-hidden-long-enough-1"\nrequests-open-max = 0\n',
                     '[[key]]\nname = "a"\nsecret = "sk-hidden-long-enough-1"\n' * 2):
            self.assertNotIn("sk-hidden", self.refused(text, "--keys-file"), text)


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.certificate, cls.key = (str(pathlib.Path(cls.folder.name, name)) for name in ("cert.pem", "key.pem"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-keyout", cls.key, "-out", cls.certificate, "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True)
        cls.server = start(f"--tls-certificate-file={cls.certificate}", f"--tls-key-file={cls.key}", "--header-seconds=1",
                           "--idle-seconds=2")
        cls.context = ssl.create_default_context(cafile=cls.certificate)
        cls.context.set_alpn_protocols(["h2", "http/1.1"])

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.folder.cleanup()
        assert code == 0, code

    def connect(self):
        return self.context.wrap_socket(self.server.connect(), server_hostname="127.0.0.1")

    def test_requests_and_streams(self):
        with self.connect() as sock:
            self.assertEqual(sock.selected_alpn_protocol(), "http/1.1")
            reader = Reader(sock)
            sock.sendall(get("/health") + stream(20) + post("/test/echo", b"x" * 1_000_000))
            self.assertEqual(reader.answer().status, 200)
            self.assertEqual(reader.answer().body.count(b'"at":'), 20)
            self.assertEqual(len(reader.answer().body), 1_000_000)

    def test_a_large_answer_and_a_client_that_leaves(self):
        with self.connect() as sock:
            sock.sendall(get("/test/bytes?n=20000000"))
            self.assertEqual(len(Reader(sock).answer().body), 20_000_000)
        for _ in range(20):
            with self.connect() as sock:
                sock.sendall(stream(100_000))
                Reader(sock).until(b"data: ")
        wait_until(self.nothing_runs, 5)

    def nothing_runs(self):
        with self.connect() as sock:
            sock.sendall(get("/metrics"))
            return b"\ndeepinfer_requests_running 0\n" in Reader(sock).answer().body

    def test_no_tls_half_a_handshake_and_garbage(self):
        for data in (b"", b"\x16\x03\x01\x02\x00\x01\x00", get("/health"), os.urandom(1000)):
            with self.server.connect() as sock:
                sock.sendall(data)
                sock.settimeout(5)
                try:
                    while sock.recv(1000):
                        pass
                except ConnectionResetError:
                    pass
        with self.connect() as sock:
            sock.sendall(get("/health"))
            self.assertEqual(Reader(sock).answer().status, 200)

    def test_unusable_files(self):
        for certificate, key in ((self.key, self.key), (self.certificate, self.certificate), ("/nonexistent", self.key)):
            done = subprocess.run([PROGRAM, "--port=0", f"--tls-certificate-file={certificate}", f"--tls-key-file={key}"],
                                  capture_output=True, timeout=20)
            self.assertEqual(done.returncode, 1)
            self.assertIn("PEM", done.stderr.decode())


if __name__ == "__main__":
    unittest.main(verbosity=1)
