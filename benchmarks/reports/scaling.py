"""The sections of ``docs/benchmarks.md`` on parallelism and on the driver of large jobs."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

from benchmarks.reports.cells import machine, row, spread
from benchmarks.suites.coordinator import BEHIND_THE_ENTRY, RETAINED, exponent, until_logged_ms
from benchmarks.suites.scaling import PAYLOAD_BYTES, ROW_MS
from benchmarks.suites.synthetic_slots import KEY_GROUPS, MESSAGE_BYTES, SHAPES, VERTICES
from penstock.coordinator.metrics import HISTORY_SIZE
from penstock.snapshots.store.store import MAX_READ_BYTES


def scaling(result: dict[str, Any]) -> str:
    looked_at = result["machine"].get("penstock") == LOOKED_AT
    parts = [*_parallelism(result), *_working(result["working"]), *(_WHY_SO_LITTLE if looked_at else [])]
    return "\n".join([*parts, f"({machine(result)})", ""])


def coordinator(result: dict[str, Any]) -> str:
    return "\n".join([*_large_job(result["shapes"]), f"({machine(result)})", ""])


# -- real queries -----------------------------------------------------------------------------------------------------


def _parallelism(result: dict[str, Any]) -> list[str]:
    budget = result["gate_budget_bytes"]
    lines = [
        "## Scaling: more slots on one machine",
        "",
        f"What more slots cost: the job of FLIP-76 above, but of rows of {PAYLOAD_BYTES / 1000:.0f} kB, for each of",
        f"which its sink sleeps {ROW_MS:.0f} ms, so that cores are not what 16 slots wait for (`cores` are those that",
        "the slots use while checkpoints are taken, and in brackets the whole machine). When the queues are full,",
        "unaligned checkpoints are asked for one at a time; parallelisms in turn, upwards and downwards. Median (least",
        "to most) over all checkpoints of all rounds; `x` is the ratio of medians to parallelism 1. `gates`: what",
        f"waits in a subtask's gate, whose budget is {budget / 2**20:.0f} MiB (`exchange.memoryPerGate`), whatever the",
        "number of its channels. `raw write`: as many bytes as the checkpoint wrote, written and fsynced into a file",
        "for each slot.",
        "",
        row("parallelism", "channels", "checkpoint, ms", "x", "raw write, ms", "x", "in flight, MB", "x", "cores"),
        row(*["---:"] * 9),
    ]
    for parallelism, cells in result["parallelism"].items():
        ratio = result["ratio_to_1"][parallelism]
        lines.append(
            row(
                parallelism,
                cells[0]["channels"],
                spread(_all(cells, "duration_ms"), digits=0),
                f"**{ratio['duration_ms']:.1f}**",
                spread(_all(cells, "raw_write_ms"), digits=0),
                f"{ratio['raw_write_ms']:.1f}",
                spread(_all(cells, "inflight_bytes"), 1e6, 1),
                f"{ratio['inflight_bytes']:.1f}",
                f"{_cores(cells, 'slot_cores')} ({_cores(cells, 'busy_cores')})",
            )
        )
    lines += [
        "",
        row(
            "parallelism",
            "gates, MB",
            "fullest, of its budget",
            "metadata, kB",
            "x",
            "a slot's own memory, MB",
            "x",
            "resident",
            "driver's CPU for a checkpoint, ms",
            "x",
            "driver without one, cores",
        ),
        row(*["---:"] * 11),
    ]
    for parallelism, cells in result["parallelism"].items():
        ratio = result["ratio_to_1"][parallelism]
        gates = _all(cells, "gate_bytes")
        own, resident = ([b for cell in cells for b in cell["slot_bytes"][kind]] for kind in ("own", "resident"))
        lines.append(
            row(
                parallelism,
                spread(gates, 1e6, 2),
                f"**{max(gates) / budget:.2f}**",
                spread(_all(cells, "metadata_bytes"), 1e3, 0),
                f"{ratio['metadata_bytes']:.1f}",
                spread(own, 1e6, 0),
                f"{ratio['slot_own_bytes']:.2f}",
                f"{statistics.median(resident) / 1e6:.0f}",
                spread([cell["driver_cpu_ms"] for cell in cells], digits=1),
                f"{ratio['driver_cpu_ms']:.1f}",
                f"{statistics.median(cell['driver_idle_cores'] for cell in cells):.3f}",
            )
        )
    return [
        *lines,
        "",
        "What is not alike. All slots share one disk, and the cores of one machine: where there are fewer cores than",
        "slots, threads of a checkpoint that would have a core each take turns, so checkpoints are slower than on",
        "machines that grow with the job. The raw write goes through its files one after the other, slots write side",
        "by side. The driver's CPU is that of its Python process, less what it uses when there is no checkpoint;",
        "Spark's JVM has no part in one. A slot's process is a fork: `own` is what no other process shares. Rows are",
        "long on purpose: as many bytes of short rows are more work for the same cores. A checkpoint waits for the row",
        f"that a stage is at: up to {ROW_MS:.0f} ms, and the more likely the whole of it the more slots there are.",
        "",
    ]


def _working(found: dict[str, Any]) -> list[str]:
    lines = [
        "What more slots give, as far as there is a core for each: source -> hash -> keyed count and sum -> noop,",
        "every row over the exchange, nobody sleeps; a source's partition for each slot. In turns with the above.",
        "`x` and `of linear` are of medians, to parallelism 1; `rows for a core's second` tells what a slot's work",
        "costs, whether or not its core was free.",
        "",
        row(
            "parallelism", "M rows/s", "x", "of linear", "slots' cores", "machine's", "M rows for a core's second", "x"
        ),
        row(*["---:"] * 8),
    ]
    base = None
    for parallelism, cells in found.items():
        rates = [cell["rows_per_second"] for cell in cells]
        each = [cell["rows_per_second"] / cell["slot_cores"] for cell in cells]
        median, costs = statistics.median(rates), statistics.median(each)
        base = base or (median, costs)
        lines.append(
            row(
                parallelism,
                spread(rates, 1e6, 1),
                f"{median / base[0]:.2f}",
                f"**{median / base[0] / int(parallelism):.2f}**",
                _cores(cells, "slot_cores"),
                _cores(cells, "busy_cores"),
                spread(each, 1e6, 1),
                f"{costs / base[1]:.2f}",
            )
        )
    return [*lines, ""]


LOOKED_AT = "e481e337c093"
"""The commit of the run that the following is about."""
_WHY_SO_LITTLE = [
    "Why more slots give so little in this run, and two to eight the least. A slot is one process of Python with one",
    "lock, but took 1.4 to 1.7 cores where some were idle. Looked at some minutes later, same commit and kind of",
    "machine, one window of 4 s each: with 8 slots each of a slot's three busy threads (source, aggregation, sockets)",
    "went to sleep 10,000 to 15,000 times a second; with all threads of a slot bound to one core by",
    "`sched_setaffinity` 70 to 1,500 times. Bound, 8 slots did 72.7 M rows/s with 8.0 cores, unbound 45.6 with 11.2;",
    "2 slots 26.4 with 2.0 and 39.6 with 3.4. A thread lets go of the lock at every call of numpy or Arrow; on an",
    "idle core another has it at once, and then the first waits for it behind calls shorter than the wait. And the",
    "aggregation takes every small buffer as it comes, where later several are one slice: rows that are few at a",
    "time cost it more (two slots on two cores, 16,384 rows at a time: 8.4 M rows for a core's second at full speed,",
    "3.6 at a third of it). With 16 slots no core is idle. Besides, one slot alone sends nothing over sockets, and the",
    "more there are, the smaller the parts of a batch: bound, 2 slots did 13.2 M rows for a core's second, and 8 did",
    "9.1. What would change it: a core for each slot to keep (Spark does not tell its tasks which ones are theirs),",
    "fewer and larger calls for each buffer, or an interpreter without that lock. Tried and not kept: turns by whole",
    "steps among a slot's subtasks (8 slots 35.7 to 37.5 M rows/s, 16 slots 82.8 to 86.5, one run), and pauses of",
    "half a flush interval behind slices that took all there was (no difference on two cores beyond noise).",
    "",
]


def _all(cells: list[dict[str, Any]], name: str) -> list[float]:
    return [value for cell in cells for value in cell[name]]


def _cores(cells: list[dict[str, Any]], name: str) -> str:
    return f"{statistics.median(cell[name] for cell in cells):.1f}"


# -- the driver of a large job ----------------------------------------------------------------------------------------


def _large_job(found: dict[str, Any]) -> list[str]:
    deltas, chain = SHAPES["state"].deltas, SHAPES["long chains"].deltas
    lines = [
        "## The driver of a large job",
        "",
        "Its real code (coordinator, snapshot metadata, log, collection, figures, over a",
        f"local store), and slots that are made up: {VERTICES} vertices, hashed from each to the next, at parallelism",
        "1 to 1,000. CPU from the trigger to the entry in the log, of one thread; the bytes of each slot's message are",
        "decoded as they come. Each size has a process of its own. What a manifest holds of each subtask behind the",
        f"source: `state`: a table of a base and {deltas} deltas; `long chains`: of a base and {chain}, as many as",
        "there get; `event time`: as `state`, and a watermark for each of its channels; `in flight`: and a section of",
        "rows for each of its channels. Channels are quadratic in parallelism. `growth`: the exponent between a size",
        "and the one before; 1 is linear. Median (least to most) over checkpoints.",
        "",
        row(
            "",
            "subtasks",
            "channels",
            "CPU, ms",
            "for a subtask, us",
            "x",
            "growth",
            "metadata, MB",
            "for a subtask, kB",
            "peak, MB",
            "kept, MB",
        ),
        row("---", *["---:"] * 10),
    ]
    for shape, cases in found.items():
        lines += _cases(shape, cases)
    lines += ["", *_parts(found), ""]
    refused = [f"{shape}, {int(n):,}: {one['refused']}" for shape, cases in found.items() for n, one in cases.items()
               if one["refused"]]  # fmt: skip
    return [
        *lines,
        "`peak`: what the process grows to in its first checkpoint, above what it had. `kept`: what it has more of",
        f"after each, as the driver remembers the figures of the newest {HISTORY_SIZE} checkpoints. Metadata is one "
        "file",
        f"of at most {MAX_READ_BYTES >> 20} MiB; a checkpoint with more fails."
        + (f" It did ({'; '.join(refused)})." if refused else ""),
        "",
        "What is not alike. No sockets, so neither reading from links nor writing to them is in it, nor waiting: a",
        "driver has a thread for links, one for decisions and one for the log, which share one interpreter. Slots of a",
        f"real job differ in what they hold; these have {KEY_GROUPS:,} key groups, sections of {chain} deltas lie in",
        f"few files, one sink has messages of {MESSAGE_BYTES} bytes, and {RETAINED} snapshots are retained. Files of",
        "data have holes, so that the disk is not measured. `figures` come with each acknowledgement and twice a",
        "second besides, checkpoint or not.",
        "",
    ]


def _cases(shape: str, cases: dict[str, Any]) -> list[str]:
    """``x`` and ``growth`` are of CPU; of a checkpoint that is refused in the end it is what was used until then."""
    lines = []
    first = small = None
    for name, one in cases.items():
        subtasks = int(name)
        took = [until_logged_ms(spent) for spent in one["cpu_ms"]]
        ms = statistics.median(took)
        first = first or ms / subtasks
        length = one["metadata_bytes"]
        lines.append(
            row(
                shape,
                f"{subtasks:,}",
                f"{one['channels']:,}",
                spread(took, digits=1) + (" **refused**" if one["refused"] else ""),
                f"{ms / subtasks * 1000:.0f}",
                f"{ms / subtasks / first:.2f}",
                "" if small is None else f"{exponent(small, (subtasks, ms)):.2f}",
                "" if one["refused"] else f"{length / 1e6:.2f}",
                "" if one["refused"] else f"{length / subtasks / 1e3:.1f}",
                f"{one['peak_bytes'] / 1e6:.0f}",
                "" if one["refused"] else f"{max(0.0, one['kept_bytes']) / 1e6:.2f}",
            )
        )
        small = subtasks, ms
    return lines


def _parts(found: dict[str, Any]) -> list[str]:
    """Return the parts of the largest case of each shape, with the exponent of growth from the case of a tenth its
    size."""
    names = ["messages", "figures", "machine", "metadata", "log", "store", *BEHIND_THE_ENTRY]
    lines = [
        "Where it goes, in the largest of each, ms (and growth from the size before): decoding and encoding of",
        "messages, figures of subtasks, decisions, metadata (checks, encoding and reading back), the log, the store;",
        "behind the entry the commit, the collection and looks for new input.",
        "",
        row("", "subtasks", *names),
        row("---", *["---:"] * (len(names) + 1)),
    ]
    for shape, cases in found.items():
        (small, before), (large, one) = list(itertools.pairwise(cases.items()))[-1]
        cells = []
        for name in names:
            ms = [statistics.median(spent.get(name, 0.0) for spent in case["cpu_ms"]) for case in (before, one)]
            grown = f" ({exponent((int(small), ms[0]), (int(large), ms[1])):.2f})" if min(ms) > 0.01 else ""
            cells.append(f"{ms[1]:.1f}{grown}")
        lines.append(row(shape, f"{int(large):,}", *cells))
    return lines
