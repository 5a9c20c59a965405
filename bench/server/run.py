#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the server costs without a model: short requests a second, streams held, CPU a token, added time.

usage: run.py BUILD_DIR [short] [tokens] [burst] [held]

The server runs on core 0, the load on core 1, both on this machine; "held" uses both cores and as many processes as the
limit of open files asks for. CPU is the server's own
(its null engine included), user and system, from /proc;
"per_core_second" is what the server could do if the load took no longer than it.
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

TICK = os.sysconf("SC_CLK_TCK")


class Server:
    def __init__(self, build, core, *flags):
        command = [*(["taskset", "-c", str(core)] if core is not None else []), build / "bin/null_server", "--port=0",
                   "--log-file=/dev/null", "--worker-queue-max=30000", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        self.port = int(re.search(r":(\d+)\n", self.process.stdout.readline().decode()).group(1))

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) / TICK, int(fields[12]) / TICK

    def stop(self):
        self.process.terminate()
        self.process.wait()


def client(build, core, *arguments):
    command = [*(["taskset", "-c", str(core)] if core is not None else []), build / "bin/load_client", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def finish(process):
    return json.loads(process.communicate()[0])


def measure(build, what, flags, *arguments, cores=(0, 1)):
    server = Server(build, cores[0], *flags)
    time.sleep(0.2)
    before, begin = server.cpu(), time.monotonic()
    kind, *rest = arguments
    result = finish(client(build, cores[1], kind, server.port, *rest))
    elapsed = time.monotonic() - begin
    user, system = (after - b for after, b in zip(server.cpu(), before))
    server.stop()
    if "tokens" in result:
        result["user_us_per_token"] = round(user / result["tokens"] * 1e6, 2)
        result["system_us_per_token"] = round(system / result["tokens"] * 1e6, 2)
        result["all_us_per_token"] = round((user + system) / result["tokens"] * 1e6, 2)
    if "requests_per_second" in result:
        result["requests_per_core_second"] = round(result["requests_per_second"] * elapsed / (user + system))
    result["server_core_used"] = round((user + system) / elapsed, 2)
    print(what, json.dumps(result), flush=True)


def held(build, streams, tokens):
    """As many servers and clients as the limit of open files asks for."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    parts = -(-streams // (limit - 256))
    servers = [Server(build, None, "--step-us=1000000", "--idle-seconds=600") for _ in range(parts)]
    clients = [client(build, None, "streams", server.port, -(-streams // parts), tokens, 1, 4) for server in servers]
    for server, process in zip(servers, clients):
        print("held", json.dumps({"server_processes": parts, **finish(process)}), flush=True)
        server.stop()


def main():
    build = pathlib.Path(sys.argv[1])
    wanted = sys.argv[2:] or ["short", "tokens", "burst", "held"]
    for name in wanted:
        if name == "short":
            measure(build, "short, logged", [], "short", 64, 5)
            measure(build, "short, not logged", ["--log-requests=false"], "short", 64, 5)
            measure(build, "short, one connection", [], "short", 1, 2)
        elif name == "tokens":  # one write a token: 1,000 streams, a token each every 20 ms
            measure(build, "tokens, few streams", ["--step-us=20000"], "streams", 64, 200, 1, 4)
            measure(build, "tokens, 1 a write", ["--step-us=20000"], "streams", 1000, 200, 1, 4)
        elif name == "burst":  # 8 tokens of a stream ready together
            measure(build, "tokens, 8 ready together", ["--step-us=50000"], "streams", 1000, 800, 8, 4)
        elif name == "held":
            held(build, 20_000, 20)


if __name__ == "__main__":
    main()
