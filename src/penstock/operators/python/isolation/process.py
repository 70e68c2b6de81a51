"""Slot's end of a function process: starts it, sends requests, receives responses, and detects its exit."""

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
"""Limit for the bytes of results that were received but not taken. Above it the process blocks. A larger batch is
received alone."""
CLOSE_TIMEOUT_S = 0.3
"""Time in seconds after which a process is killed if its call still runs. A slot's threads have one second to end."""
EXIT_TIMEOUT_S = 5.0
"""Time limit in seconds to wait for the exit status of a process that has closed its socket."""

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[3]); "
    "from penstock.operators.python.isolation.child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
"""Program of the process. It copies the slot's ``sys.path``, to which Spark may have added paths."""


@dataclass(frozen=True)
class Response:
    """Response of a function process. ``kind`` is ROWS, DONE or FAILED."""

    kind: Kind
    payload: pa.Buffer


class FunctionProcess:
    """Function process that is started by one thread of the slot.

    The thread must live as long as the process: on Linux the kernel kills the process when the thread ends.

    The process is a fresh interpreter, not a fork, because Spark's worker has threads and open sockets at this time. It
    starts in the background; the result of the first request is delayed until it has started.

    Args:
        task: the task that the process runs.
        on_response: called on another thread after each response and after the exit of the process; it must be fast.

    Raises:
        FunctionError: the functions cannot be pickled.
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
        """Send a request. The responses to the previous request must have been taken.

        Raises:
            FunctionError: the process has exited.
        """
        try:
            send(self._connection, kind, payload)
        except OSError as problem:
            raise self._exit_error() from problem

    def take_response(self, wait: bool) -> Response | None:
        """Return the next response; None if there is none yet and ``wait`` is False.

        Raises:
            FunctionError: the process has exited, and all responses were taken.
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
        """End the process. User iterators run their ``finally`` blocks, unless a call takes ``CLOSE_TIMEOUT_S``.

        After this time the process is killed.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        with suppress(OSError):  # the process may have exited already
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
        """Receive responses; runs on a separate thread."""
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
        # The message has no process id, so that the same failure at the same position gives the same message.
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
