"""The thread in which gRPC serves: one event loop for as long as the process lives.

`grpc.aio` and not `grpc.server`: the thread of the latter wakes five times a second to look whether the interpreter has
signals, which on an idle node is nearly half of all that a gRPC server does, and each of its calls takes a thread of its own.
One loop for all servers, because grpcio has one queue of events for all loops of a process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loops: list[asyncio.AbstractEventLoop] = []


def run(work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
    """Runs `work` in the loop's thread; the loop begins with the first one. Not to be waited for in that thread."""
    with _lock:
        if not _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="grpc", daemon=True).start()
            _loops.append(loop)
    return asyncio.run_coroutine_threadsafe(work(), _loops[0])
