# SPDX-License-Identifier: Apache-2.0
"""The server of the protocol tests, clients of it, and raw requests."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

import anthropic
import openai

PROGRAM = os.environ["DI_PROGRAM"]
SOURCE = pathlib.Path(os.environ["DI_SOURCE"])
BINARY = pathlib.Path(os.environ["DI_BINARY"])
SCALE = int(os.environ.get("DI_SCALE", "1"))  # of the long runs
MODEL = "tiny"
ALICE, BOB, CAPPED = "sk-alice-0123456789abcdef", "sk-bob-0123456789abcdef", "sk-capped-0123456789abcdef"

KEYS = f"""
[[key]]
name = "alice"
secret = "{ALICE}"
[[key]]
name = "bob"
secret = "{BOB}"
isolated-cache = true
[[key]]
name = "capped"
secret = "{CAPPED}"
max-tokens-max = 5
"""

WEATHER = {"name": "get_weather", "description": "Get the weather for a city",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


class Server:
    def __init__(self):
        self.directory = tempfile.TemporaryDirectory()
        directory = pathlib.Path(self.directory.name)
        (directory / "keys.toml").write_text(KEYS)
        os.chmod(directory / "keys.toml", 0o600)
        self.log = directory / "log"
        command = [PROGRAM, "serve", "--port", "0", "--model", str(SOURCE / "models/deepseek-v41-tiny"), "--served-model-name",
                   MODEL, "--keys-file", str(directory / "keys.toml"), "--log-file", str(self.log),
                   "--requests-running-max", "96", "--kv-memory-bytes", str(512 << 20)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.port = self._wait_for_port()
        # Nobody reads on; the pipe must not fill up.
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def _wait_for_port(self):
        seen = ""
        for line in self.process.stdout:
            seen += line
            found = re.search(r"https?://[^\s/]*:(\d+)", line)
            if found:
                return int(found.group(1))
        raise RuntimeError(f"the server did not start: {seen}")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def log_text(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.directory.cleanup()


server = None


def start_server():
    global server
    server = Server()
    return server


def openai_client(key=ALICE, **more):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=60, **more)


def anthropic_client(key=ALICE, **more):
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=60, **more)


class Raw:
    """One connection; requests of bytes or JSON."""

    def __init__(self, key=ALICE):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def start(self, method, path, body=None, headers=None):
        data = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
        self.connection.request(method, path, data, {**self.headers, **(headers or {})})
        return self.connection.getresponse()

    def call(self, method, path, body=None, headers=None):
        """(status, parsed body)"""
        response = self.start(method, path, body, headers)
        text = response.read()
        return response.status, json.loads(text) if text else None

    def close(self):
        self.connection.close()


def post(path, body, key=ALICE, headers=None):
    raw = Raw(key)
    try:
        return raw.call("POST", path, body, headers)
    finally:
        raw.close()


def events(path, body, key=ALICE):
    """The events of a stream as (event name or None, data); the text "[DONE]" stays text."""
    raw = Raw(key)
    try:
        response = raw.start("POST", path, {**body, "stream": True})
        assert response.status == 200, response.read()
        found, name = [], None
        for line in response.read().decode().split("\n"):
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = line[6:]
                found.append((name, data if data == "[DONE]" else json.loads(data)))
            elif line == "":
                name = None
        return found
    finally:
        raw.close()


def metric(name):
    """The sum of a metric over its labels."""
    raw = Raw()
    try:
        text = raw.start("GET", "/metrics").read().decode()
    finally:
        raw.close()
    values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(re.escape(name) + r"[ {]", line)]
    assert values, f"there is no metric {name}:\n{text[:3000]}"
    return sum(values)


def alive():
    """The alive check: healthy, and a plain request gives the answer that it always gave."""
    raw = Raw()
    try:
        assert raw.start("GET", "/health").read() is not None
    finally:
        raw.close()
    status, answer = post("/v1/completions", {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
    assert status == 200, answer
    text = answer["choices"][0]["text"]
    alive.text = getattr(alive, "text", text)
    assert text == alive.text, (text, alive.text)


def eventually(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
