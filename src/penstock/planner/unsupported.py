"""Unsupported plans, with reasons and workarounds. The documentation prints this table, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.catalyst.trees import JavaTree, kind, plan_line
from penstock.errors import NotSupported, NotYet


@dataclass(frozen=True)
class Unsupported:
    """Reason why something is not supported. ``planned``: raised as NotYet. ``workaround``: what to write instead."""

    reason: str
    workaround: str = ""
    planned: bool = False

    def error(self, subject: str) -> NotSupported:
        text = f"{subject}: {self.reason}"
        if self.workaround:
            text += f"; {self.workaround}"
        return (NotYet if self.planned else NotSupported)(text)


@contextmanager
def at_node(node: JavaTree) -> Iterator[None]:
    """Add Spark's plan line of this node to the message of NotSupported errors raised in the block."""
    try:
        yield
    except NotSupported as error:
        raise type(error)(f"{error}\n  in the plan: {plan_line(node)}") from None


def _planned(reason: str, workaround: str = "") -> Unsupported:
    return Unsupported(reason, workaround, planned=True)


_GROUP_FUNCTION = _planned("functions over groups are not run yet", "use groupBy().agg() with count/sum/min/max/avg")
LIMIT_BELOW_WHOLE = Unsupported(
    "in complete mode Spark's engine takes so many rows of every micro-batch, which there are none of here",
    "limit the aggregation's result",
)

NODES: dict[str, Unsupported] = {
    "FlatMapGroupsInPandas": _GROUP_FUNCTION,
    "FlatMapGroupsInArrow": _GROUP_FUNCTION,
    "FlatMapCoGroupsInPandas": _GROUP_FUNCTION,
    "FlatMapCoGroupsInArrow": _GROUP_FUNCTION,
    "RebalancePartitions": Unsupported("the rebalance hint is not used", "write df.repartition(n)"),
    "WithCTE": Unsupported(
        "several outputs do not share a WITH clause", "register it as a temporary view, or start a query for each"
    ),
    "CollectMetrics": _planned("observe() is not run yet", "read query.lastProgress"),
}

UNION_WITH_STATIC = Unsupported(
    "a static DataFrame is no input of a stream's union", "write its rows to the sink once, or stream from its files"
)
UNION_WHOLE = Unsupported(
    "complete mode yields the aggregation's whole result again and again, which nothing can be added to",
    "aggregate behind the union",
)
UNION_TYPES = Unsupported("the inputs' columns differ in type", "cast them to one")
STREAM_JOIN_TYPE = Unsupported(
    "two streams are joined inner, left, right or full outer, or left semi", "write the join as one of these"
)
STREAM_JOIN_KEYS = Unsupported(
    "two streams are joined by equalities between them (of anything but maps), as in Spark's engine",
    "add one to the condition, for example of an id or of a window",
)
STREAM_JOIN_WHOLE = Unsupported(
    "complete mode yields the aggregation's whole result again and again", "join in front of the aggregation"
)
STREAM_JOIN_WINDOW = Unsupported(
    "the watermark's column is a window that is no key of the join, so that nothing says how long its rows are of use",
    "call window() behind the join, or compare the windows of both sides for equality",
)
OUTPUTS_OF_SEVERAL_STREAMS = Unsupported(
    "outputs of one query that read several streams have to share the union or join of these",
    "derive all outputs from the DataFrame that unites or joins the streams, or start a query for each",
)
UNKNOWN_NODE = Unsupported("this plan node is not supported")

DISTINCT_SESSION = Unsupported(
    "over session windows distinct aggregates are of one set of columns, without FILTER: others Spark computes from "
    "sessions of each value, and so counts a value once for each of these",
    "take size(collect_set(...)), or approx_count_distinct",
)
AGGREGATE_FUNCTION = _planned(
    "this aggregate function is not run yet", "collect_list its argument and compute it from the list, in a udf"
)
OPTIMIZER_FAILS = Unsupported("Spark's own optimizer fails on this plan", "write it in another way")
MODE_OF_SEVERAL = Unsupported(
    "of values that come equally often Spark gives any one, by chance",
    "write mode(x, true), which gives the least of them, or mode() WITHIN GROUP (ORDER BY x)",
)
TRY_AGGREGATE = _planned("try_sum and try_avg of intervals are not run yet", "use sum and avg")
SKETCH_ERROR = Unsupported("sketches with errors below 0.2 % are not kept", "count(distinct ...) is exact")
NESTED_KEY = _planned("such keys are not run yet: maps, and arrays for functions with state", "use a string of it")
JOIN_TYPE = Unsupported(
    "a stream and a static side are joined inner, outer with all rows of the stream, semi or anti with the stream on "
    "the left",
    "write the join as one of these",
)
NESTED_SORT_KEY = _planned("arrays and maps are not sorted by yet", "sort where the output is read")
SECOND_EVENT_TIME = Unsupported(
    "two keys carry the watermark, so that it is open which of them closes a group",
    "cast one of them, for example to a string or a date",
)
NESTED_MAP_KEY = _planned("arrays and maps are no keys of a map state yet", "use a string of it")
STATE_NAME = Unsupported(
    "it is a table's name in snapshots, where __timers, __waiting, slashes and control characters mean something else",
    "call the state by another name",
)
STATE_DELETED = Unsupported(
    "init deletes it (deleteIfExists) and then declares it, which would empty it in every micro-batch of Spark",
    "give the new state another name, or leave out deleteIfExists",
)
SESSION_OF_ALL = Unsupported(
    "Spark's engine has no session windows without another key", "group by a constant column besides, or by a key"
)
SUBQUERY = _planned(
    "subqueries are not run yet", "collect() the value first and use it as a literal, or look it up inside a udf"
)
SECOND_AGGREGATION = Unsupported(
    "aggregations over aggregations, which several distinct columns in one are, too, run in append mode alone: only "
    "there the first one yields a result once",
    "use append mode over windows, or write the first result and stream from it",
)
SECOND_WATERMARK = Unsupported("a query has one watermark", "keep one withWatermark call")
WATERMARK_BEHIND_EXCHANGE = _planned(
    "a watermark is generated where its source is read, and what is below this one needs an exchange before",
    "call withWatermark before operators with state, and before a function over the partitions of repartition(columns);"
    " where the query has several outputs, derive all of them from the DataFrame that withWatermark returns",
)
LATE_WITHOUT_EVENT_TIME = Unsupported(
    "no row of this aggregation is ever late",
    "group by the column that has the watermark, or by a window over it, in append or update mode",
)
LATE_WITHOUT_WATERMARK = Unsupported(
    "no row of this deduplication is ever late, as the column with the watermark does not reach it",
    "call withWatermark, and select its column where dropDuplicates is written",
)
DEDUPLICATE_NOTHING = Unsupported(
    "Spark's engine does not start a deduplication without columns", "name the columns that make rows equal"
)
DEDUPLICATE_WHOLE = Unsupported(
    "complete mode yields the aggregation's whole result again and again, of which only the first would be left",
    "drop duplicates in front of the aggregation, or where the output is read",
)
DEDUPLICATE_EVENT_TIMES = Unsupported(
    "two columns carry the watermark, so that it is open by which of them a row is late; Spark's engine fails on it",
    "select only one of them, or cast the other one, for example to a string or a date",
)
DEDUPLICATE_WITHIN_WINDOW = Unsupported(
    "keys expire some time after a moment, and a window is none; Spark's engine would take it for a number",
    "call dropDuplicatesWithinWatermark before window()",
)
COALESCE = Unsupported(
    "coalesce(n) merges partitions, and Penstock's parallelism is the query's",
    "set option parallelism, or repartition(n) to rebalance rows",
)
RANGE_PARTITIONING = Unsupported("an endless stream has no ranges to sample", "use repartition(n, columns)")
SOURCE_FORMAT = _planned(
    "streams are read from files, Kafka, rate, rate-micro-batch, socket and Python data sources so far",
    "write a Python DataSource with a streamReader or simpleStreamReader",
)
SCHEDULED_MAP = Unsupported("barrier=True and resource profiles belong to Spark's own scheduling", "leave them out")
CURRENT_TIME = Unsupported(
    "the current time differs from run to run, so a restart could not repeat its results",
    "use a time column of the source (rate and Kafka have one), or compute it inside a udf",
)
NOT_DETERMINISTIC = Unsupported(
    "its result differs from run to run, so a restart could not repeat it",
    "derive the value from columns, for example by xxhash64, or compute it inside a udf",
)


def documentation() -> str:
    """Return the table of refused plan nodes as Markdown."""
    lines = ["| Plan node | Why | Instead | Planned |", "|---|---|---|---|"]
    for name, refusal in NODES.items():
        cells = (f"`{name}`", refusal.reason, refusal.workaround, "yes" if refusal.planned else "no")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def unsupported_node(node: JavaTree) -> NotSupported:
    """Return the error for a plan node that the compiler does not support."""
    return NODES.get(kind(node), UNKNOWN_NODE).error(kind(node))
