"""The section of ``docs/benchmarks.md`` about ablations: mechanisms as they are, and switched off or replaced."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.reports.cells import machine, row, spread
from benchmarks.suites.ablations import FIXED_ROWS, MANY_KEYS, NUMBERS_BYTES, TIME_OUTS

Rounds = Callable[[dict[str, Any], str], list[float]]
"""Of a result and a form, a figure for each round."""
Average = Callable[[Sequence[float]], float]

NOTICEABLE = 1.05
"""A mechanism pays, or costs, if every round says so by at least this."""
CROSSING = 4
"""One of so many rows goes each way between two slots: each makes a half, and sends a half of that away."""


@dataclass(frozen=True)
class Line:
    """Line of the table.

    Attributes:
        mechanism: mechanism that is judged.
        measure: one of ``MEASURES``.
        on, off: forms with and without it.
        shows: interpretation of the result, whichever way it goes.
    """

    mechanism: str
    measure: str
    on: str
    off: str
    shows: str


RATE, DURATION, INFLIGHT, WRITTEN, ISOLATED_RATE, ISOLATED_MS = (
    "M rows/s",
    "checkpoint, ms",
    "in flight in a checkpoint, MB",
    "written by a checkpoint, MB",
    "M rows/s, light function",
    "checkpoint, ms, function that holds the GIL",
)

LINES = (
    Line(
        "barriers overtake queued rows",
        DURATION,
        "as it is",
        "barriers stay behind the queues",
        "Logging channels until the barrier arrives (Chandy and Lamport) captures no output queues, and waits for "
        "them to drain, hop by hop: its time is that of the slow sink.",
    ),
    Line(
        "barriers overtake queued rows",
        INFLIGHT,
        "as it is",
        "barriers stay behind the queues",
        "The price: what is overtaken becomes part of the snapshot, though most of it is written once only (below).",
    ),
    Line(
        "capture at the checkpoint",
        RATE,
        "a checkpoint a second",
        "every buffer is spilled",
        "Spilling writes all rows there are, capturing only those in flight when a checkpoint comes. Spilling is "
        "spared the checkpoints here, and checksums; what it could save of a checkpoint is told below.",
    ),
    Line(
        "rows that are durable are not written again",
        WRITTEN,
        "long queues",
        "all rows in flight are written",
        "Queues of 8 MB gates, of which little moves between two checkpoints.",
    ),
    Line(
        "rows that are durable are not written again",
        DURATION,
        "long queues",
        "all rows in flight are written",
        "It saves the time of writing only.",
    ),
    Line(
        "slices of about 20 ms",
        DURATION,
        "as it is",
        "slices of whole buffers",
        "A barrier waits for the slice that is in the works; a buffer of 1 ms a row is more than that.",
    ),
    Line(
        "slices of about 20 ms",
        RATE,
        "as it is",
        "slices of whole buffers",
        "Where rows are cheap, slices are large, and several buffers make one.",
    ),
    Line(
        "slices of about 20 ms",
        RATE,
        "as it is",
        f"slices of {FIXED_ROWS} rows",
        f"{FIXED_ROWS} rows are what adaptive slices have with 1 ms a row; here they are fixed for a cheap job.",
    ),
    Line(
        "partial aggregation",
        RATE,
        "partial aggregation",
        "as it is",
        "10,000 keys: a batch of 65,536 rows has each key several times. Without, batches are aggregated behind the "
        "exchange, for as much CPU by a profile (72 ns a row instead of 78); it saves network, and here is none.",
    ),
    Line(
        "partial aggregation",
        RATE,
        "many keys, partial aggregation",
        "many keys",
        f"{MANY_KEYS:,} keys: hardly two rows of a batch have the same. By the profile 349 ns of CPU a row before the "
        "exchange, or 335 behind it.",
    ),
    Line(
        "lz4 on links (not in the engine)",
        RATE,
        "links compress with lz4",
        "as it is",
        "Two integers a row. The link is loopback: there is no bandwidth to save, only CPU to spend.",
    ),
    Line(
        "lz4 on links (not in the engine)",
        RATE,
        "text, links compress with lz4",
        "text",
        "Lines of a log. The link is loopback, as above.",
    ),
    Line(
        "lz4 in snapshots (not in the engine)",
        WRITTEN,
        "all rows in flight are written with lz4",
        "all rows in flight are written",
        "Rows in flight, lines of a log.",
    ),
    Line(
        "lz4 in snapshots (not in the engine)",
        DURATION,
        "all rows in flight are written with lz4",
        "all rows in flight are written",
        "Fewer bytes to a local disk, more CPU before that.",
    ),
    Line(
        "functions in place",
        ISOLATED_RATE,
        "none",
        "process",
        "A process beside the slot takes rows there and back: what a light function pays for it.",
    ),
    Line(
        "functions in a process of their own",
        ISOLATED_MS,
        "process",
        "none",
        "In place, a call that holds the GIL stalls its slot. In a process it does not, but a barrier waits for the "
        "call all the same where it is under way: an epoch ends between two.",
    ),
)

# -- figures ----------------------------------------------------------------------------------------------------------


def later(taken: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Without the first, which writes all that is in flight; aligned ones write nothing and are all alike."""
    return taken[1:] if taken[0]["unaligned"] and len(taken) > 1 else taken


def _of_checkpoints(name: str, unit: float, average: Average) -> Rounds:
    def rounds(result: dict[str, Any], form: str) -> list[float]:
        taken = result["checkpoints"][form]
        return [average([one[name] for one in later(cell)]) / unit for cell in taken]

    return rounds


def _of_rates(result: dict[str, Any], form: str) -> list[float]:
    return [rows / 1e6 for rows in result["rows_per_second"][form]]


MEASURES: dict[str, tuple[Rounds, bool]] = {
    RATE: (_of_rates, True),
    DURATION: (_of_checkpoints("duration_ms", 1, statistics.median), False),
    INFLIGHT: (_of_checkpoints("inflight_bytes", 1e6, statistics.median), False),
    WRITTEN: (_of_checkpoints("written_bytes", 1e6, statistics.mean), False),
    ISOLATED_RATE: (lambda result, form: [v / 1e6 for v in result["isolation"]["rows_per_second"][form]], True),
    ISOLATED_MS: (lambda result, form: result["isolation"]["checkpoint_ms"][form], False),
}
"""What each round of a form found, and whether more is better. Of bytes written the mean: rows move on a window at a
time, so that some checkpoints have nothing to write."""


def gains(line: Line, result: dict[str, Any]) -> list[float]:
    """Return, by round, the factor by which the result is better with the mechanism."""
    found, more_is_better = MEASURES[line.measure]
    pairs = zip(found(result, line.on), found(result, line.off), strict=True)
    return [_ratio(on, off) if more_is_better else _ratio(off, on) for on, off in pairs]


def _ratio(value: float, reference: float) -> float:
    return value / reference if reference else math.inf


def verdict(found: Sequence[float]) -> str:
    if len(found) == 1:
        return "one round only"
    if min(found) >= NOTICEABLE:
        return "pays"
    if max(found) <= 1 / NOTICEABLE:
        return "costs"
    return "neither"


# -- the section ------------------------------------------------------------------------------------------------------


def ablations(result: dict[str, Any]) -> str:
    lines = [
        "## Ablations: what each mechanism is worth",
        "",
        "Each mechanism as it is, and switched off or replaced by what the engine would do without it, in turns on two",
        "slots. Rates: source -> hash -> keyed count and sum, saturated, no checkpoints unless it says so.",
        "Checkpoints: source -> hash -> stage -> hash -> a stage that sleeps 1 ms a row, lines of a log of about 100",
        "bytes, queues full, unaligned, one at a time, median (of bytes written the mean) without a query's first.",
        "`gain` is how many times better it is with the mechanism, the median of the rounds' ratios with least and",
        f"largest; it *pays* if every round gains {NOTICEABLE - 1:.0%} at least, *costs* if every round loses as much;",
        "it is `inf` where nothing at all was written with it.",
        "",
        row("mechanism", "measure", "with", "without", "gain", "", "what it shows"),
        row("---", "---", "---:", "---:", "---:", "---", "---"),
        *(_row(line, result) for line in LINES),
        "",
        _spilled(result),
        "",
        *_time_outs(result["checkpoints"]),
        "",
        _break_even(result),
        "",
        "How it was done, and what is not alike. The time-out, partial aggregation (by `repartition` before it) and",
        "`function.isolation` are switched as a user would. The rest has no switch: the running code of the slots is",
        "replaced (`benchmarks/suites/ablation_variants.py`), so no form without a mechanism was made as good as it",
        "might be. In",
        "schedules of the simulator, which restore from what was captured, replaced barriers, slices and references",
        "lose nothing and double nothing; spilled buffers are read by nobody. Barriers behind the queues still act",
        "when they arrive at a consumer, ahead of what waits in its input queue, which is kind to that form. Spilling",
        "writes to one file over and over, without checksum or index, which is kind to it as well. Compression uses",
        "Arrow's own lz4 frames on loopback and a local disk; a real network or an object store would speak more for",
        "it.",
    ]
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def _row(line: Line, result: dict[str, Any]) -> str:
    rounds, _ = MEASURES[line.measure]
    with_it, without = (spread(rounds(result, form)) for form in (line.on, line.off))
    found = gains(line, result)
    return row(line.mechanism, line.measure, with_it, without, f"**{spread(found)}**", verdict(found), line.shows)


def _spilled(result: dict[str, Any]) -> str:
    """Return the bytes that spilling writes, and the most that it could save."""
    mb_per_second = statistics.median(_of_rates(result, "every buffer is spilled")) * NUMBERS_BYTES
    first = [taken[0] for taken in result["checkpoints"]["long queues"]]
    whole, writing = (statistics.median(one[name] for one in first) for name in ("duration_ms", "writing_ms"))
    bytes_mb = statistics.median(one["written_bytes"] for one in first) / 1e6
    return (
        f"Spilling wrote {mb_per_second:,.0f} MB a second (computed: rows by {NUMBERS_BYTES} bytes). The most it could "
        f"save is the writing: a query's first checkpoint with long queues wrote {bytes_mb:.0f} MB and took "
        f"{whole:.0f} ms, of which {writing:.0f} ms were spent writing (medians)."
    )


def _time_outs(checkpoints: dict[str, Any]) -> list[str]:
    lines = [
        "`checkpoint.alignmentTimeout`, of the job with the slow sink (its queues drain in some seconds) and of the",
        "saturated exchange (in far less): milliseconds, MB written by a checkpoint, and how many were",
        "unaligned anywhere.",
        "",
        row("time-out", "slow sink, ms", "MB", "unaligned", "saturated, ms", "MB", "unaligned"),
        row("---", "---:", "---:", "---:", "---:", "---:", "---:"),
    ]
    for name in TIME_OUTS:
        cells = (_time_out(checkpoints[f"time-out {name}, {job}"]) for job in ("slow sink", "saturated"))
        lines.append(row(name + (" (default)" if name == "200 ms" else ""), *(text for cell in cells for text in cell)))
    return lines


def _time_out(rounds: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    kept = [one for taken in rounds for one in later(taken)]
    return [
        spread([one["duration_ms"] for one in kept], 1, 0),
        f"{statistics.mean(one['written_bytes'] for one in kept) / 1e6:.2f}",
        f"{sum(one['unaligned'] for one in kept)} of {len(kept)}",
    ]


def _break_even(result: dict[str, Any]) -> str:
    """Return the bandwidth above which lz4 on links costs more than it saves, from measurements on loopback."""
    texts = []
    for name, form in (("integers", "as it is"), ("log lines", "text")):
        size = result["batch_bytes"]["numbers" if form == "as it is" else "text"]
        with_it = "links compress with lz4" if form == "as it is" else "text, links compress with lz4"
        plain, packed = (statistics.median(result["rows_per_second"][one]) for one in (form, with_it))
        smaller = f"{name} become {size['plain'] / size['lz4']:.1f} times smaller"
        if packed >= plain:
            texts.append(f"{smaller} and are no slower even on loopback")
            continue
        gbit = 8 * packed * size["plain"] / size["rows"] / CROSSING / 1e9
        texts.append(f"{smaller}, which outweighs the CPU on a link below {gbit:.1f} Gbit/s each way")
    return f"Computed from these rates and from the sizes of a batch: {'; '.join(texts)}."
