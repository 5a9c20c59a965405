# SPDX-License-Identifier: Apache-2.0
"""The curl examples of README.md, executed as they stand against the test's server."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import support
from support import ALICE, SOURCE

EXPECTED = {"/v1/chat/completions": "content", "/v1/responses": "output", "/v1/messages": "message_stop", "/v1/models": "tiny",
            "/tokenize": "tokens", "/v1/completions": "text"}


def examples():
    """Shell commands that begin with curl in indented or fenced blocks; a backslash goes on."""
    text = (SOURCE / "README.md").read_text()
    commands, current = [], None
    for line in text.splitlines():
        stripped = line.strip()
        if current is not None:
            current += "\n" + stripped
        elif stripped.startswith("curl "):
            current = stripped
        if current is not None and not current.endswith("\\") and current.count("'") % 2 == 0:
            commands.append(current)
            current = None
    return commands


class ReadmeTest(unittest.TestCase):
    def test_curl_examples(self):
        commands = examples()
        self.assertGreaterEqual(len(commands), 3)
        with tempfile.TemporaryDirectory() as home:
            (pathlib.Path(home) / ".curlrc").write_text(f'header = "Authorization: Bearer {ALICE}"\nfail-with-body\nsilent\nshow-error\n')
            for command in commands:
                command = re.sub(r"(127\.0\.0\.1|localhost):8000", f"127.0.0.1:{support.server.port}", command)
                command = command.replace("deepseek-v41-tiny", support.MODEL)
                done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60,
                                      env={**os.environ, "CURL_HOME": home, "HOME": home})
                self.assertEqual(done.returncode, 0, command + done.stdout + done.stderr)
                path = re.search(r":\d+(/[a-z0-9_/]+)", command).group(1)
                self.assertIn(EXPECTED.get(path, ""), done.stdout, command)
