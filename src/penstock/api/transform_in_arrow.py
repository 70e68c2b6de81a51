"""``penstock.transformWithStateInArrow``: stateful Python over columns of many keys."""

# ruff: noqa: N802, N803 - the names follow PySpark's

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import GroupedData
from pyspark.sql.types import StructType

from penstock.operators.stateful.arrow_processor import ArrowStatefulProcessor
from penstock.operators.stateful.per_key import PerKeyProcessor
from penstock.spark.errors import wrong_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def transformWithStateInArrow(
    grouped: GroupedData,
    statefulProcessor: ArrowStatefulProcessor,
    outputStructType: StructType | str,
    outputMode: str,
    timeMode: str,
    eventTimeColumnName: str = "",
) -> DataFrame:
    """Transform a grouped stream like ``grouped.transformWithState(...)``, with a processor of batches of many keys.

    The result is an ordinary streaming DataFrame. Spark's own engine can run it too, key by key, if its executors can
    import this package. State is stored as by ``transformWithState``: if the same state is declared, a query can
    switch from one form to the other at the same checkpoint location.

    Args:
        grouped: ``df.groupBy(...)`` of a streaming DataFrame.
        statefulProcessor: the processor; PySpark pickles it.
        outputStructType, outputMode, timeMode, eventTimeColumnName: see PySpark's ``transformWithState``.

    Raises:
        ArgumentTypeError: ``grouped`` is not a grouped DataFrame of a classic session, or ``statefulProcessor`` is not
            an ``ArrowStatefulProcessor``.
        AnalysisException: Spark refuses the plan.
    """
    if not isinstance(grouped, GroupedData):
        raise wrong_type("grouped", grouped, "df.groupBy(...) of a classic session")
    if not isinstance(statefulProcessor, ArrowStatefulProcessor):
        raise wrong_type(
            "statefulProcessor",
            statefulProcessor,
            "a penstock.ArrowStatefulProcessor (one of PySpark goes to transformWithState)",
        )
    df = grouped._df
    spark = df.sparkSession
    output = outputStructType if isinstance(outputStructType, StructType) else spark._parse_ddl(outputStructType)
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert isinstance(output, StructType)
    assert zone is not None
    adapter = PerKeyProcessor(statefulProcessor, df.schema, output, zone)
    return grouped.transformWithState(adapter, output, outputMode, timeMode, eventTimeColumnName=eventTimeColumnName)
