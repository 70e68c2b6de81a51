"""Function process: a fresh interpreter that runs those operators of one subtask that call user functions.

The main thread runs the operators as the slot would. A second thread reads the socket, so that this process ends with
the slot even while the main thread is busy. On Linux the kernel also kills this process when the slot's thread ends.
Therefore even a call that holds the GIL does not outlive a killed slot.
"""

from __future__ import annotations

import ctypes
import json
import os
import pickle
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.malloc import keep_freed_memory
from penstock.operators.base import Operator
from penstock.operators.python.isolation.frames import Kind, decode, encode, receive, send
from penstock.operators.python.isolation.task import Task
from penstock.operators.python.user_code import function_error

_PR_SET_PDEATHSIG = 1


def main(descriptor: int, parent: int) -> None:
    """Serve the slot of process ``parent`` over the socket ``descriptor`` until it sends CLOSE or exits."""
    _die_with(parent)
    keep_freed_memory()
    connection = socket.socket(fileno=descriptor)
    requests: queue.SimpleQueue[tuple[Kind, pa.Buffer]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, requests), name="penstock-listen", daemon=True).start()
    runner = _FunctionRunner(connection)
    while True:
        kind, payload = requests.get()
        runner.handle(kind, payload)
        if kind is Kind.CLOSE:
            os._exit(0)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # without prctl, the end of the socket ends this process
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _listen(connection: socket.socket, requests: queue.SimpleQueue[tuple[Kind, pa.Buffer]]) -> None:
    try:
        while True:
            requests.put(receive(connection))
    except (EOFError, OSError):
        os._exit(0)


class _FunctionRunner:
    """Chain of operators that handles requests."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._operators: Sequence[Operator] = ()
        self._label = ""
        self._result_columns = 0

    def handle(self, kind: Kind, payload: pa.Buffer) -> None:
        """Handle one request and send the responses. A failure is sent as a response."""
        began = time.perf_counter()
        try:
            match kind:
                case Kind.SPECS:
                    self._open(payload)
                case Kind.PROCESS:
                    self._send(self._through(0, decode(payload)))
                case Kind.FINISH:
                    for index, operator in enumerate(self._operators):
                        for batch in operator.finish_epoch():
                            self._send(self._through(index + 1, batch))
                case Kind.CLOSE:
                    for operator in self._operators:
                        operator.close()
        except BaseException as problem:  # noqa: BLE001 - user code may raise anything; it is reported
            self._report_failure(problem)
            return
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        lags = any(operator.may_hold_rows() for operator in self._operators)
        self._respond(Kind.DONE, {"lags": lags, "ms": (time.perf_counter() - began) * 1000})

    def _open(self, payload: pa.Buffer) -> None:
        task: Task = pickle.loads(payload)
        self._label, self._result_columns = task.label, task.result_columns
        task.spark_state.adopt()
        operators = []
        for spec, context in task.operators():
            operators.append(spec.create())
            operators[-1].open(context)
        self._operators = operators

    def _through(self, index: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if index == len(self._operators):
            yield batch
            return
        for out in self._operators[index].process(batch):
            yield from self._through(index + 1, out)

    def _send(self, batches: Iterator[pa.RecordBatch]) -> None:
        for batch in batches:
            if self._result_columns:
                columns = range(batch.num_columns - self._result_columns, batch.num_columns)
                batch = batch.select(list(columns))
            send(self._connection, Kind.ROWS, encode(batch))

    def _report_failure(self, problem: BaseException) -> None:
        error = problem if isinstance(problem, PenstockError) else function_error(self._label, problem)
        self._respond(Kind.FAILED, {"type": type(error).__name__, "args": [str(value) for value in error.args]})

    def _respond(self, kind: Kind, content: dict[str, Any]) -> None:
        send(self._connection, kind, json.dumps(content).encode())
