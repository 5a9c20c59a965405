# SPDX-License-Identifier: Apache-2.0
"""Seeds of the HTTP fuzz target: requests of each framing, several on one connection, and each of the ambiguous ones.

    make_http_seeds.py DIRECTORY      writes one file each and prints their paths
"""
import pathlib
import sys

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"
SEEDS = {
    "get": b"GET /v1/models?limit=2 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\n\r\n",
    "length": POST + b"Content-Length: 2\r\n\r\n{}",
    "chunked": POST + b"Transfer-Encoding: chunked\r\n\r\n1;x=y\r\n{\r\n1\r\n}\r\n0\r\nTrailer: t\r\n\r\n",
    "two": POST + b"Content-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "old": b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "both": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "coding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "folded": b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n",
    "hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "huge": POST + b"Content-Length: 18446744073709551615\r\n\r\n{}",
    "expect": POST + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
}

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, request in SEEDS.items():
    (folder / name).write_bytes(b"\x00" + request)
    print(folder / name)
