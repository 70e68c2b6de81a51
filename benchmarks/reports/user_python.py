"""The sections of ``docs/benchmarks.md`` about users' Python."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.reports.cells import jobs, machine, row, spread, times, times_p99


def stateful_python(result: dict[str, Any]) -> str:
    lines = [
        "## Stateful Python, beside Spark",
        "",
        "The same `StatefulProcessor` on both engines, Spark's with RocksDB: running totals in a value state, and",
        f"sessions that a timer ends. {result['users']:,} users; each file is a micro-batch of Spark's own engine;",
        "`availableNow` into a noop sink, in turns, as above. How often an engine calls the user's code depends on how",
        "it cuts the rows, and so do the sessions, for which there are files enough to make the calls alike.",
        "",
        *jobs(result),
        "",
        row("job", "files", "thousand calls: Penstock", "Spark"),
        row("---", "---:", "---:", "---:"),
        *[row(name, job["files"], *_calls(job)) for name, job in result["jobs"].items()],
        *(_forms(result["forms"]) if "forms" in result else []),
    ]
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def _calls(job: dict[str, Any]) -> list[str]:
    found = job.get("calls", {})
    return [f"{found[engine] / 1e3:.0f}" if engine in found else "not counted" for engine in ("penstock", "spark")]


def _forms(found: dict[str, Any]) -> list[str]:
    seconds = {form: spread(taken) for form, taken in found["seconds"].items()}
    return [
        "",
        "The sessions by Penstock alone: key by key, and by `transformWithStateInArrow`, many keys at a time. The",
        f"target is a ratio of {found['target']:.0f}.",
        "",
        row("form", "s", "Arrow's speed to it"),
        row("---", "---:", "---:"),
        *[row(form, taken, f"{found['arrow_to'][form]:.2f}") for form, taken in seconds.items()],
    ]


def timers(result: dict[str, Any]) -> str:
    lines = [
        "## One million timers due at once",
        "",
        f"One row moves the watermark past {result['timers']:,} timers, which have all fired {result['seconds']:.0f} s",
        "later. Unaligned checkpoints meanwhile, and before, with the same state at rest; milliseconds, min / median /",
        "p99 / max. The target is a delay of at most 100 ms.",
        "",
        row("", "checkpoints", "until all subtasks had taken their state", "until all was written"),
        row("---", "---:", "---:", "---:"),
    ]
    for name, form in (("at rest", "at_rest"), ("timers fire", "firing")):
        found = result[form]
        lines.append(row(name, found["taken_ms"]["n"], times_p99(found["taken_ms"]), times_p99(found["duration_ms"])))
    return "\n".join([*lines, "", f"({machine(result)})", ""])


def isolation(result: dict[str, Any]) -> str:
    starts = result["first_row_ms"]
    lines = [
        "## Functions in a process of their own: `function.isolation`",
        "",
        "source -> hash -> `mapInArrow` -> noop, two slots, gates of 2 MB while checkpoints are taken. `identity`",
        "hands its batches on, `light` computes with Arrow (which does not hold the GIL), `burning` is a Python loop",
        f"of {result['loop_us']:.0f} us a row, `holding` one C call per batch that holds the GIL "
        f"({result['call_seconds']:.2f} s on an idle",
        "interpreter). Rows are those through the stage without checkpoints; the ratio is the median of neighbouring",
        "runs, `process` to `none`. Checkpoints are unaligned, one at a time; milliseconds, min / median / p99 / max.",
        "",
        row("function", "M rows/s: none", "process", "ratio", "checkpoints: none", "process"),
        row("---", "---:", "---:", "---:", "---:", "---:"),
    ]
    for name, stage in result["stages"].items():
        rates = stage["rows_per_second"]
        shown = [spread(rates[form], 1e6) if rates[form] else "" for form in ("none", "process")]
        ratio = f"{stage['ratio']:.2f}" if stage["ratio"] is not None else ""
        durations = [times_p99(stage["checkpoint_ms"][form]) for form in ("none", "process")]
        lines.append(row(name, *shown, ratio, *durations))
    note = (
        f"From `start()` to the first row behind the stage: {times(starts['none'])} ms in the slot, "
        f"{times(starts['process'])} ms in a process (min / median / max)."
    )
    return "\n".join([*lines, "", note, "", f"({machine(result)})", ""])


def latency(result: dict[str, Any]) -> str:
    target, most = result["target_ms"], max(len(rounds) for job in result["jobs"].values() for rounds in job.values())
    lines = [
        "## Latency of a keyed Python function, beside Spark",
        "",
        f"{result['rows_per_second']:,} rows a second come by the clock; a function with value state keeps a running",
        "total of each key and yields every row with it. Milliseconds from the moment a row was due (not when it was",
        "fetched) to the memory sink, of every row: with Penstock to the sink's write call (the commit follows at the",
        "checkpoint interval, 10 s here), with Spark's own engine and its default trigger until its micro-batch is in",
        "the sink. Checkpoints run as by default, and unaligned. Medians of the figures of",
        f"{most} rounds; a ratio is the median of the rounds' ratios. The target is a p99 of at most {target:.0f} ms.",
        "",
        "The forms of pandas and of Rows are called once per key and slice. Alone, without any engine, a call with",
        f"five rows takes {result['call_us']['pandas']:.0f} us in pandas and {result['call_us']['Rows']:.0f} us with",
        "Rows. In pandas with 100 keys these calls, of some rows each, are most of what keeps both cores busy all the",
        "time, and a row waits for up to a round over all keys.",
        "",
        row("function", "keys", "engine", "median", "p99", "largest", "median to Spark's", "p99 to Spark's"),
        row("---", "---:", "---", "---:", "---:", "---:", "---:", "---:"),
    ]
    for job, forms in result["jobs"].items():
        for form, rounds in forms.items():
            median, p99, most_ms = (spread([one[name] for one in rounds], 1, 0) for name in ("median", "p99", "max"))
            ratios = [f"{ratio_to(forms['spark'], rounds, name):.3f}" for name in ("median", "p99")]
            lines.append(row(job, result["keys"][job], form, median, f"**{p99}**", most_ms, *ratios))
    return "\n".join([*lines, "", f"({'; '.join([machine(result), *result.get('notes', ())])})", ""])


def ratio_to(base: list[dict[str, float]], rounds: list[dict[str, float]], name: str) -> float:
    """The median of the rounds' ratios."""
    return statistics.median(one[name] / other[name] for one, other in zip(rounds, base, strict=True))
