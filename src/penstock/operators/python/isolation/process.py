"""The slot's end of a function process: starts it, sends requests, takes responses, detects its end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark import cloudpickle

from penstock.errors import FunctionError
from penstock.operators.python.isolation.frames import Kind, receive, send
from penstock.operators.python.isolation.task import Task

HELD_BYTES = 8 << 20
"""Limit of results that were not taken; beyond it the process blocks. A larger batch is held alone."""
CLOSE_TIMEOUT_S = 0.3
"""A process whose call lasts longer is killed: a slot's threads have a second to end."""
EXIT_TIMEOUT_S = 5.0
"""Time limit for the exit status of a process whose socket is closed already."""

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[3]); "
    "from penstock.operators.python.isolation.child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
"""Program of the process. It takes over ``sys.path``: Spark may have added paths to it."""


@dataclass(frozen=True)
class Response:
    """Response of a function process. ``kind`` is ROWS, DONE or FAILED."""

    kind: Kind
    payload: pa.Buffer


class FunctionProcess:
    """Function process of one thread, which must live as long: where the kernel can, both die at the same time.

    A fresh interpreter, not a fork: Spark's workers have threads and open sockets by now. It starts in the background;
    the first request waits for it.

    Args:
        task: what it runs.
        on_response: called on another thread whenever there is something to take; must be quick.

    Raises:
        FunctionError: the functions cannot be sent to another process.
    """

    def __init__(self, task: Task, on_response: Callable[[], None]) -> None:
        self._label = task.label
        self._on_response = on_response
        pickled = _pickled(task)
        self._connection, theirs = socket.socketpair()
        with theirs:
            arguments = [str(theirs.fileno()), str(os.getpid()), json.dumps(sys.path)]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *arguments], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        self._responses: deque[Response] = deque()
        self._held_bytes = 0
        self._changed = threading.Condition()
        self._has_exited = self._closed = False
        self._thread = threading.Thread(target=self._listen, name=f"penstock-function-{self._process.pid}", daemon=True)
        self._thread.start()
        self.request(Kind.SPECS, pickled)

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, kind: Kind, payload: object = b"") -> None:
        """Send a request; the one before must have been answered.

        Raises:
            FunctionError: the process has ended.
        """
        try:
            send(self._connection, kind, payload)
        except OSError as problem:
            raise self._exit_error() from problem

    def take_response(self, wait: bool) -> Response | None:
        """Return the next response. None if there is none yet and the caller does not ``wait``.

        Raises:
            FunctionError: the process has ended, and every answer was taken.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._responses or self._has_exited)
            if self._responses:
                response = self._responses.popleft()
                self._held_bytes -= response.payload.size
                self._changed.notify_all()
                return response
            has_exited = self._has_exited
        if has_exited:
            raise self._exit_error()
        return None

    def close(self) -> None:
        """End the process. Functions between two calls run their ``finally`` blocks; a call in progress is killed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with suppress(OSError):  # it is gone already
            send(self._connection, Kind.CLOSE)
        try:
            self._process.wait(CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def _listen(self) -> None:
        """Receive responses, on a thread of its own."""
        try:
            while True:
                response = Response(*receive(self._connection))
                with self._changed:
                    self._changed.wait_for(
                        lambda: self._closed or not self._held_bytes or self._held_bytes < HELD_BYTES
                    )
                    self._responses.append(response)
                    self._held_bytes += response.payload.size
                    self._changed.notify_all()
                self._on_response()
        except (EOFError, OSError):
            with self._changed:
                self._has_exited = True
                self._changed.notify_all()
            self._on_response()

    def _exit_error(self) -> FunctionError:
        try:
            status = self._process.wait(EXIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return FunctionError(self._label, "EOFError: its process closed its connection and lives on")
        # The message has no process id, so that the same end at the same position gives the same message.
        how = f"was killed by {_signal_name(-status)}" if status < 0 else f"exited with status {status}"
        return FunctionError(self._label, f"the end of its process, which {how}")


def _pickled(task: Task) -> bytes:
    try:
        return bytes(cloudpickle.dumps(task))
    except Exception as error:
        raise FunctionError(
            task.label,
            f"{type(error).__name__}: {error}; with spark.penstock.function.isolation=process functions must be "
            "picklable in Spark's workers, too: set it to none, or leave out what cannot be pickled",
        ) from error


def _signal_name(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    return f"{name} (was it out of memory?)" if name == "SIGKILL" else name
