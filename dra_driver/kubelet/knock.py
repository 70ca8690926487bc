"""One call of GetInfo over a unix socket, by hand: what a liveness probe needs, without a gRPC client in the process.

grpcio's client costs 4 MB and 2.4 ms for this; the frames below are RFC 9113 (HTTP/2) and RFC 7541 (HPACK, static
table and literals only), and their meaning cannot change. An answer with a DATA frame has passed through the whole server:
gRPC core, the thread that serves, a worker, the service. Errors are answered without one.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from pathlib import Path

_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x7
_END_STREAM, _END_HEADERS = 0x1, 0x4
_STREAM = 1


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes((len(name),)) + name + bytes((len(value),)) + value


# 0x83 is `:method: POST`, 0x86 is `:scheme: http` of the static table. A gRPC message is a flag, a length, and here nothing.
_CALL = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + _frame(_SETTINGS, 0, 0, b"")
    + _frame(
        _HEADERS,
        _END_HEADERS,
        _STREAM,
        b"\x83\x86"
        + _literal(b":path", b"/pluginregistration.Registration/GetInfo")
        + _literal(b":authority", b"localhost")
        + _literal(b"content-type", b"application/grpc")
        + _literal(b"te", b"trailers"),
    )
    + _frame(_DATA, _END_STREAM, _STREAM, b"\x00" * 5)
)


def why_no_answer(path: Path, timeout_s: float) -> str:
    """Calls GetInfo on the socket at `path`; empty when it is answered within `timeout_s` seconds, else the reason."""
    deadline = time.monotonic() + timeout_s
    received = b""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout_s)
            connection.connect(os.fspath(path))
            connection.sendall(_CALL)
            while (remaining := deadline - time.monotonic()) > 0:
                connection.settimeout(remaining)
                chunk = connection.recv(4096)
                if not chunk:
                    return "the server hung up"
                received += chunk
                while len(received) >= 9:
                    size = int.from_bytes(received[:3], "big")
                    kind, flags, stream = received[3], received[4], int.from_bytes(received[5:9], "big")
                    if len(received) < 9 + size:
                        break
                    received = received[9 + size :]
                    if kind == _DATA and stream == _STREAM:
                        return ""
                    if kind in (_RST_STREAM, _GOAWAY) or (kind == _HEADERS and flags & _END_STREAM):
                        return "the server refused the call"
    except TimeoutError:
        pass
    except OSError as error:
        return error.strerror or str(error)
    return f"no answer within {timeout_s:g} s"
