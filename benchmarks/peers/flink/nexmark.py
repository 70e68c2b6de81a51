"""Nexmark's queries by Flink: its SQL over a replay of the events, to nowhere or into files."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.peers.flink.cluster import Cluster
from benchmarks.peers.flink.installation import FlinkError
from benchmarks.peers.flink.job import CANCEL_LIMIT_S, TERMINAL

FOLDER = Path(__file__).parent / "queries"
MAIN_CLASS = "penstock.peer.SqlScript"
LOOK_EVERY_S = 0.05
LIMIT_S = 1800.0
SETTINGS = {
    "execution.checkpointing.interval": "10 s",  # as Penstock's default
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
}
"""What Nexmark's own configuration of Flink has, and its defaults: state in the heap is the quickest there is."""

EVENTS = """CREATE TABLE events (
    event_type INT,
    person ROW<id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING,
        `dateTime` TIMESTAMP(3), extra STRING>,
    auction ROW<id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT,
        `dateTime` TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING>,
    bid ROW<auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3),
        extra STRING>,
    `dateTime` TIMESTAMP(3),
    WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND
) WITH ('connector' = 'replay', 'path' = '{path}', 'blocks' = '{blocks}')"""
COLUMNS = {
    "person": "id name emailAddress creditCard city state . extra",
    "auction": "id itemName description initialBid reserve . expires seller category extra",
    "bid": "auction bidder price channel url . extra",
}
"""By kind, in the order of ``event_type``; ``.`` is the event's time, which alone Flink has a watermark of."""
NOWHERE = "'connector' = 'blackhole'"
FILES = "'connector' = 'filesystem', 'format' = 'json', 'path' = '{path}'"


def script(name: str, events: Path, blocks: int, sink: str) -> str:
    """Return the SQL script for ``SqlScript``: tables, views and the query."""
    statements = [EVENTS.format(path=events, blocks=blocks)]
    for number, (kind, columns) in enumerate(COLUMNS.items()):
        chosen = ", ".join("`dateTime`" if one == "." else f"events.{kind}.{one} AS {one}" for one in columns.split())
        statements.append(f"CREATE VIEW {kind} AS SELECT {chosen} FROM events WHERE event_type = {number}")
    statements.append(f"CREATE TABLE output WITH ({sink}) AS\n{(FOLDER / f'{name}.sql').read_text().rstrip()}")
    return "\n;\n".join(statements)


def run(peer: Cluster, name: str, events: Path, blocks: int, parallelism: int, output: Path | None = None) -> float:
    """One query over blocks of events (``benchmarks.peers.flink.blocks``) to its end.

    Args:
        output: a folder for its rows, as JSON; None: they go nowhere.

    Returns:
        Seconds from asking for it until it was seen to have finished.

    Raises:
        FlinkError: it did not.
    """
    sink = NOWHERE if output is None else FILES.format(path=output.absolute().as_uri())
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        path = Path(folder, f"{name}.sql")
        path.write_text(script(name, events, blocks, sink))
        settings = [f"{key}={value}" for key, value in SETTINGS.items()]
        request = {"entryClass": MAIN_CLASS, "programArgsList": [str(path), *settings], "parallelism": parallelism}
        began = time.perf_counter()
        job_id = peer.rest.post(f"/jars/{peer.jar}/run", request)["jobid"]
        try:
            _wait_until_finished(peer, name, job_id)
        except BaseException:
            _cancel(peer, job_id)
            raise
        return time.perf_counter() - began


def _wait_until_finished(peer: Cluster, name: str, job_id: str) -> None:
    until = time.monotonic() + LIMIT_S
    while (state := _state(peer, job_id)) != "FINISHED":
        if state in TERMINAL or state == "RESTARTING" or time.monotonic() > until:
            cause = str(peer.rest.get(f"/jobs/{job_id}/exceptions").get("exceptionHistory"))[:2000]
            raise FlinkError(f"Flink's {name} is {state}: {cause}")
        time.sleep(LOOK_EVERY_S)


def _cancel(peer: Cluster, job_id: str) -> None:
    if _state(peer, job_id) not in TERMINAL:
        peer.rest.patch(f"/jobs/{job_id}?mode=cancel")
    until = time.monotonic() + CANCEL_LIMIT_S
    while _state(peer, job_id) not in TERMINAL and time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)


def _state(peer: Cluster, job_id: str) -> str:
    return str(peer.rest.get(f"/jobs/{job_id}/status")["status"])
