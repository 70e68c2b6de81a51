"""The bare reference of the exchange benchmark: numpy, pyarrow and sockets, no engine.

Two processes. Each makes batches of 65,536 rows (int64 key below 10,000, int64 value), splits them by key, keeps its
own half and sends the other half to its peer as Arrow IPC over one TCP connection, and adds both what it kept and what
it received into a count and a sum per key. No checkpoint, no flow control but TCP's, no recovery.
"""

from __future__ import annotations

import multiprocessing as mp
import socket
import threading
import time
from multiprocessing.connection import Connection

import numpy as np
import pyarrow as pa

KEYS = 10_000
BATCH_ROWS = 65_536
SLOTS = 2


def make_batches(count: int, seed: int) -> list[pa.RecordBatch]:
    """A few distinct batches that are sent in turn, so that making rows is not what is measured."""
    random = np.random.default_rng(seed)
    return [
        pa.RecordBatch.from_arrays(
            [
                pa.array(random.integers(0, KEYS, BATCH_ROWS, dtype=np.int64)),
                pa.array(random.integers(0, 1_000, BATCH_ROWS, dtype=np.int64)),
            ],
            names=["key", "value"],
        )
        for _ in range(count)
    ]


class KeyedSums:
    """Count and sum per key, by ``numpy.bincount``."""

    def __init__(self) -> None:
        self.counts = np.zeros(KEYS, dtype=np.int64)
        self.sums = np.zeros(KEYS, dtype=np.float64)
        self.lock = threading.Lock()

    def add(self, batch: pa.RecordBatch) -> None:
        keys = batch.column(0).to_numpy()
        values = batch.column(1).to_numpy()
        with self.lock:
            self.counts += np.bincount(keys, minlength=KEYS)
            self.sums += np.bincount(keys, weights=values, minlength=KEYS)


def split(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """One part per slot, by a multiplicative hash of the key."""
    keys = batch.column(0).to_numpy()
    slots = ((keys * 0x9E3779B1) >> 16) % SLOTS
    order = np.argsort(slots, kind="stable")
    first = int(np.count_nonzero(slots == 0))
    parts = batch.take(pa.array(order))
    return [parts.slice(0, first), parts.slice(first)]


def _receive(sock: socket.socket, sums: KeyedSums) -> None:
    with sock.makefile("rb") as stream, pa.ipc.open_stream(stream) as reader:
        for batch in reader:
            sums.add(batch)


def _slot(index: int, ports: Connection, batches: int, done: Connection) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    ports.send(listener.getsockname()[1])
    peer_port = ports.recv()
    outgoing = socket.create_connection(("127.0.0.1", peer_port))
    incoming, _ = listener.accept()
    sums = KeyedSums()
    receiver = threading.Thread(target=_receive, args=(incoming, sums))
    receiver.start()
    pool = make_batches(8, index)
    ports.send("ready")
    ports.recv()
    started = time.perf_counter()
    with outgoing.makefile("wb") as stream, pa.ipc.new_stream(stream, pool[0].schema) as writer:
        for number in range(batches):
            parts = split(pool[number % len(pool)])
            sums.add(parts[index])
            writer.write_batch(parts[1 - index])
    outgoing.shutdown(socket.SHUT_WR)
    receiver.join()
    done.send((time.perf_counter() - started, int(sums.counts.sum())))


def run(batches_per_slot: int) -> float:
    """Rows per second over both processes; checks that no row was lost."""
    context = mp.get_context("spawn")
    links, results, processes = [], [], []
    for index in range(SLOTS):
        ours, theirs = context.Pipe()
        result, done = context.Pipe(duplex=False)
        process = context.Process(target=_slot, args=(index, theirs, batches_per_slot, done))
        process.start()
        links.append(ours)
        results.append(result)
        processes.append(process)
    ports = [link.recv() for link in links]
    for link, port in zip(links, reversed(ports), strict=True):
        link.send(port)
    for link in links:
        link.recv()
    for link in links:
        link.send("go")
    outcomes = [result.recv() for result in results]
    for process in processes:
        process.join()
    rows = sum(count for _, count in outcomes)
    if rows != SLOTS * batches_per_slot * BATCH_ROWS:
        raise RuntimeError(f"the reference lost rows: {rows}")
    return rows / max(seconds for seconds, _ in outcomes)


if __name__ == "__main__":
    print(f"{run(400) / 1e6:.1f} M rows/s")
