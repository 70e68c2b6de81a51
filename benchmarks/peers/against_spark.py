"""One streaming DataFrame run to its end by Penstock and by Spark's own engine, in turns.

Both run ``availableNow`` into a noop sink from a fresh checkpoint location. A run's time is all of it, from ``start()``
to the query's own end: planning, starting slots and the final checkpoint or last batch included. CPU seconds are those
of the driver, the JVM and all Python processes. The first round of each is warm-up and does not count.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from operator import truediv

from pyspark.sql import DataFrame

import penstock
from benchmarks.lib import harness
from benchmarks.lib.cpu_time import CpuTime

MASTER = f"local[{harness.SLOTS}]"
"""More task threads than cores would only slow Spark down; a noop sink needs no slot beside the query's."""
TIMEOUT_S = 3600.0

Figures = dict[str, list[float]]
"""By engine, a figure of each round."""


def by_penstock(df: DataFrame, mode: str, location: str, **options: str) -> None:
    writer = penstock.writeStream(df).format("noop").outputMode(mode).option("checkpointLocation", location)
    query = writer.options(**options).option("parallelism", harness.SLOTS).trigger(availableNow=True).start()
    if not query.awaitTermination(TIMEOUT_S):
        query.stop()
        raise TimeoutError(f"Penstock did not end within {TIMEOUT_S:.0f} s")


def by_spark(df: DataFrame, mode: str, location: str, **options: str) -> None:
    writer = df.writeStream.format("noop").outputMode(mode).option("checkpointLocation", location)
    query = writer.options(**options).trigger(availableNow=True).start()
    if not query.awaitTermination(TIMEOUT_S):
        query.stop()
        raise TimeoutError(f"Spark did not end within {TIMEOUT_S:.0f} s")


PEER = "flink"
"""Which has processes of its own (``benchmarks.peers.flink``)."""
ENGINES = {"penstock": by_penstock, "spark": by_spark}

Run = Callable[[], None]
"""One query to its end."""
Prepared = Callable[[], AbstractContextManager[Run]]
"""Called anew for each run: what is done on entering and on leaving is not measured."""


@contextmanager
def prepared(engine: str, make: Callable[[], DataFrame], mode: str, **options: str) -> Iterator[Run]:
    """``options`` are the writer's."""
    df = make()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as location:
        yield lambda: ENGINES[engine](df, mode, location, **options)


def in_turns(engines: Mapping[str, Prepared], rounds: int, peer_pids: Collection[int] = ()) -> tuple[Figures, Figures]:
    """Every engine once in each round; who begins changes. Seconds and CPU seconds of each run.

    Args:
        peer_pids: processes of ``PEER``: its CPU seconds are theirs, and theirs are not the others'.
    """
    seconds: Figures = {engine: [] for engine in engines}
    cpu: Figures = {engine: [] for engine in engines}
    names = list(engines)
    for number in range(rounds):
        for engine in names[number % len(names) :] + names[: number % len(names)]:
            used = CpuTime(of=peer_pids) if engine == PEER else CpuTime(without=peer_pids)
            with engines[engine]() as run:
                began = time.perf_counter()
                with used:
                    run()
                seconds[engine].append(time.perf_counter() - began)
            cpu[engine].append(used.seconds)
    return seconds, cpu


def compare(
    make: Callable[[], DataFrame],
    mode: str,
    rounds: int,
    warm_up: Callable[[], DataFrame] | None = None,
    calls: Callable[[], int] | None = None,
) -> dict[str, object]:
    """Both engines, in turns.

    Args:
        warm_up: the same over less data, for the round that does not count.
        calls: takes how often the user's code was called in the run that has just ended.

    Returns:
        ``seconds`` and ``cpu_seconds`` (each ``Figures``), ``speed_to_spark`` (above 1: Penstock is faster) and
        ``cpu_to_spark`` (below 1: it needs less), the median of the rounds' ratios each; ``calls`` of the last round by
        engine, if they are counted.
    """
    called: dict[str, int] = {}

    @contextmanager
    def counted(engine: str, make: Callable[[], DataFrame]) -> Iterator[Run]:
        with prepared(engine, make, mode) as run:
            yield run
        if calls is not None:
            called[engine] = calls()

    in_turns({engine: partial(counted, engine, warm_up or make) for engine in ENGINES}, 1)
    seconds, cpu = in_turns({engine: partial(counted, engine, make) for engine in ENGINES}, rounds)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "speed_to_spark": statistics.median(map(truediv, seconds["spark"], seconds["penstock"])),
        "cpu_to_spark": statistics.median(map(truediv, cpu["penstock"], cpu["spark"])),
        **({} if calls is None else {"calls": called}),
    }
