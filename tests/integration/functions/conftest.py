"""The relations of edge values, written once per run, and each group's comparison, made once per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

from penstock.functions import SessionConf
from tests.support.functions.avro_stand_in import add_avro
from tests.support.functions.expression_groups import GROUPS
from tests.support.functions.expression_oracle import Compiled, Relation, check

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Compare = Callable[..., list[str]]
Compile = Callable[..., AbstractContextManager[list[Compiled]]]


@pytest.fixture(scope="session")
def relation(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Relation]:
    """``relation(group)``: the edge values that a group's cases read."""
    made: dict[str, Relation] = {}
    made_avro: list[str] = []

    def make(group: str) -> Relation:
        build = GROUPS[group].relation
        if group.startswith("avro") and not made_avro:
            add_avro(spark, tmp_path_factory.mktemp("avro"))
            made_avro.append(group)
        if build.__name__ not in made:
            path = str(tmp_path_factory.mktemp("edges") / build.__name__)
            frame = spark.createDataFrame(build())
            if "ntz" in frame.columns:  # PySpark reads Arrow's timestamps without zone as instants
                frame = frame.withColumn("ntz", frame.ntz.cast("timestamp_ntz"))
            made[build.__name__] = Relation(spark, frame, path)
        return made[build.__name__]

    return make


@pytest.fixture(scope="session")
def compiled(spark: SparkSession, relation: Callable[[str], Relation]) -> Compile:
    """``compiled(group, ansi, time_zone)``: its cases, with the session's settings for them; kept for UTC."""
    done: dict[tuple[str, bool], list[Compiled]] = {}

    @contextmanager
    def compile_group(group: str, ansi: bool, time_zone: str = "UTC") -> Iterator[list[Compiled]]:
        edges = relation(group)  # in UTC: PySpark cannot hand over every instant in every zone
        spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
        spark.conf.set("spark.sql.session.timeZone", time_zone)
        try:
            if (group, ansi) in done and time_zone == "UTC":
                cases = done[group, ansi]
            else:
                cases = edges.compile(GROUPS[group].cases, SessionConf(ansi, time_zone))
            if time_zone == "UTC":
                done[group, ansi] = cases
            yield cases
        finally:
            spark.conf.set("spark.sql.ansi.enabled", "true")
            spark.conf.set("spark.sql.session.timeZone", "UTC")

    return compile_group


@pytest.fixture(scope="session")
def compare(spark: SparkSession, relation: Callable[[str], Relation], compiled: Compile) -> Compare:
    """``compare(group, ansi, time_zone)``: the differences between Spark's answers and ours. Of expressions that are
    compared in UTC, too, Spark's interpreter says what another zone makes of them: it need not compile them again."""
    done: dict[tuple[str, bool, str], list[str]] = {}

    def run(group: str, ansi: bool, time_zone: str = "UTC") -> list[str]:
        key = (group, ansi, time_zone)
        if key not in done:
            raising = ansi and GROUPS[group].both_modes
            generate_code(spark, time_zone == "UTC")
            try:
                with compiled(*key) as cases:
                    done[key] = check(relation(group), cases, raising)
            finally:
                generate_code(spark, True)
        return done[key]

    return run


def generate_code(spark: SparkSession, generates: bool) -> None:
    spark.conf.set("spark.sql.codegen.wholeStage", str(generates).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if generates else "NO_CODEGEN")


@pytest.fixture(autouse=True)
def as_generated_code_computes(request: pytest.FixtureRequest) -> None:
    """Use Spark's generated code, as users do: its interpreter differs, for one, about a map's keys of -0.0."""
    if request.node.get_closest_marker("spark") is not None:
        request.getfixturevalue("generated_code")
