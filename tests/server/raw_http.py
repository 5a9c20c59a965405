# SPDX-License-Identifier: Apache-2.0
"""Helpers of the server tests: a server process, raw sockets, and an HTTP/1.1 reader that believes nothing."""
import os
import re
import signal
import socket
import subprocess
import tempfile
import time


class Server:
    """A server process on a free port of 127.0.0.1. `command` is the program with what it needs to start."""

    def __init__(self, command, *flags, env=None, stdout=subprocess.PIPE, stderr=None, port=0):
        self.log = None
        if stderr is None:
            self.log = tempfile.NamedTemporaryFile(prefix="server_log_")
            stderr = self.log
        arguments = [*command, f"--port={port}", *flags]
        self.process = subprocess.Popen(arguments, stdout=stdout, stderr=stderr, env={**os.environ, **(env or {})})
        line = self.process.stdout.readline().decode()
        match = re.fullmatch(r"listening at (https?)://\S+:(\d+)\n", line)
        if not match:
            self.process.kill()
            raise AssertionError(f"no address from {arguments}: {line!r} {self.log_text()}")
        self.port = int(match.group(2))

    def log_text(self):
        if self.log is None:
            return ""
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read()

    def stop(self, number=signal.SIGTERM, timeout=20):
        self.process.send_signal(number)
        try:
            return self.process.wait(timeout)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()

    def connect(self, timeout=10):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def header(self, name):
        values = [v for k, v in self.headers if k.lower() == name.lower()]
        assert len(values) <= 1, f"{name} {len(values)} times"
        return values[0] if values else None


class Reader:
    """Reads answers off a socket. EOFError where the peer ended within one or before the first byte."""

    def __init__(self, sock):
        self.sock, self.data = sock, bytearray()

    def more(self):
        piece = self.sock.recv(1 << 16)
        if not piece:
            raise EOFError
        self.data += piece

    def until(self, mark):
        while (at := self.data.find(mark)) < 0:
            self.more()
        return self.exactly(at + len(mark))[:-len(mark)]

    def exactly(self, size):
        while len(self.data) < size:
            self.more()
        piece = bytes(self.data[:size])
        del self.data[:size]
        return piece

    def head(self):
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.1 (\d{3}) [ -~]*", lines[0])
        assert match, lines[0]
        return int(match.group(1)), [tuple(line.split(": ", 1)) for line in lines[1:]]

    def chunk(self):
        size = int(self.until(b"\r\n"), 16)
        data = self.exactly(size)
        assert self.exactly(2) == b"\r\n"
        return data

    def answer(self, head_only=False):
        status, headers = self.head()
        while status == 100:
            status, headers = self.head()
        answer = Answer(status, headers, b"")
        if head_only or status in (204, 304):
            return answer
        if answer.header("Transfer-Encoding") == "chunked":
            while data := self.chunk():
                answer.body += data
        elif (length := answer.header("Content-Length")) is not None:
            answer.body = self.exactly(int(length))
        else:
            try:
                while True:
                    self.more()
            except EOFError:
                answer.body = self.exactly(len(self.data))
        return answer

    def ended(self, seconds=5):
        """The peer closes within this time and sends nothing more."""
        self.sock.settimeout(seconds)
        try:
            return not self.data and self.sock.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False


def post(path, body, *fields, host="x", length=None):
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *fields]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def get(path, *fields):
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: x", *fields]).encode() + b"\r\n\r\n"


def ask(server, data, timeout=10, head_only=False):
    """One request on a connection of its own."""
    with server.connect(timeout) as sock:
        sock.sendall(data)
        return Reader(sock).answer(head_only)


def metric(server, name, *fields):
    """The sum over all labels."""
    text = ask(server, get("/metrics", *fields)).body.decode()
    values = [line.rsplit(" ", 1)[1] for line in text.splitlines() if re.match(re.escape(name) + r"[ {]", line)]
    return sum(float(v) for v in values)


def wait_until(condition, seconds=30, what=""):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not within {seconds} s: {what}"
        time.sleep(0.02)
