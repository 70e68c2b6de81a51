"""Refusals of expressions; the marks that only the optimizer makes; the documentation."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.catalyst.trees import elements, expr_id
from penstock.catalyst.types import to_arrow_schema, to_arrow_type, to_catalyst_json
from penstock.errors import NotSupported
from penstock.functions import SessionConf
from penstock.functions.plan import documentation, translate
from tests.support.functions.expression_oracle import bits, normalized
from tests.support.places import DOCS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    values = [float("nan"), -0.0, 0.0, None, 1.5]
    path = str(tmp_path_factory.mktemp("translation") / "frame")
    table = pa.table({"i": pa.array([1, 2, 3, None, 5], pa.int32()), "d": values, "s": list("abcde"),
                      "t": pa.array([0, 1, 2, 3, 4], pa.timestamp("us", tz="UTC"))})  # fmt: skip
    spark.createDataFrame(table).coalesce(1).write.parquet(path)
    return spark.read.parquet(path)


def compile_on(spark: SparkSession, frame: Any, sql: str) -> Any:
    analyzed = frame.selectExpr(f"{sql} as r")._jdf.queryExecution().analyzed()
    plan = spark._jsparkSession.sessionState().optimizer().execute(analyzed)
    return translate(elements(plan.expressions())[0], ordinals(frame), SessionConf())


def ordinals(frame: Any) -> dict[int, int]:
    output = elements(frame._jdf.queryExecution().analyzed().output())
    return {expr_id(attribute): i for i, attribute in enumerate(output)}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("rand()", "Rand"),
        ("monotonically_increasing_id()", "MonotonicallyIncreasingID"),
        ("sin(d)", "Sin"),
        ("date_format(t, 'YYYY')", "DateFormatClass.* by week"),
        ("date_format(t, s)", "DateFormatClass.* must be a constant"),
        ("to_timestamp(s, 'yyyy z')", "GetTimestamp.*the letter 'z'"),
        ("s rlike '(a*)+'", "RLike.*may be empty"),
        (r"s rlike r'\bfoo'", "RLike.*the pattern may mean something else"),
        ("s rlike s", "RLike.*must be a constant"),
        ("split(s, 'a?')", "StringSplit.*may match the empty text"),
        ("regexp_extract(s, '(a|b)*c', 1)", "RegExpExtract.*repeated group"),
        ("regexp_replace(s, 'a', '$1')", "RegExpReplace.*names no group"),
        ("regexp_replace(s, 'b*', '-')", "RegExpReplace"),
        ("sequence(t, t, interval 1 month)", "interval month"),
        ("str_to_map(s, '[,;]', ':')", "StringToMap"),
        ("transform(array(i), e -> rand())", "Rand"),
        ("shuffle(array(i, 2))", "Shuffle"),
        ("format_string('%e', d)", "FormatString.*the directive %e"),
        ("encode(s, s)", "Encode.encode.*one of US-ASCII"),
        ("parse_url(s, 'QUERY', s)", "ParseUrlEvaluator.evaluate.*must be constants"),
        ("s collate UTF8_LCASE = 'a'", "Collate"),
        ("cast(s as string collate UTF8_LCASE) = 'a'", "only UTF8_BINARY strings"),
        ("array(cast(s as string collate UTF8_LCASE)) = array('a')", "only UTF8_BINARY strings"),
        ("t + interval 1 month * d", "MultiplyYMInterval.*products with integers"),
    ],
)
def test_refusals_name_the_expression(spark: SparkSession, frame: Any, sql: str, name: str) -> None:
    with pytest.raises(NotSupported) as refusal:
        compile_on(spark, frame, sql)
    assert re.search(name, str(refusal.value))


@pytest.mark.spark
def test_refusals_tell_the_way_round(spark: SparkSession, frame: Any) -> None:
    with pytest.raises(NotSupported, match=r"rand\(.*\) \(Rand\) is not supported: .*add the number in the source"):
        compile_on(spark, frame, "rand()")


@pytest.mark.spark
def test_unknown_columns_are_refused(spark: SparkSession, frame: Any) -> None:
    analyzed = frame.selectExpr("i + 1 as r")._jdf.queryExecution().analyzed()
    with pytest.raises(NotSupported, match="not among the input's columns"):
        translate(elements(analyzed.expressions())[0], {}, SessionConf())


@pytest.mark.spark
def test_marks_of_the_optimizer(spark: SparkSession, frame: Any) -> None:
    """``NormalizeNaNAndZero`` and the marks around it equal Catalyst's own values."""
    package = spark._jvm.org.apache.spark.sql.catalyst
    column = elements(frame._jdf.queryExecution().analyzed().output())[1]
    normalized_column = package.optimizer.NormalizeNaNAndZero(column)
    marked = package.expressions.KnownFloatingPointNormalized(package.expressions.KnownNotNull(normalized_column))
    batch = normalized(frame.toArrow())
    ours = translate(marked, ordinals(frame), SessionConf()).evaluate(batch)
    rows = frame._jdf.queryExecution().executedPlan().executeCollect()
    attributes = package.expressions.package.AttributeSeq(frame._jdf.queryExecution().analyzed().output())
    bound = package.expressions.BindReferences.bindReference(normalized_column, attributes, False)
    assert bits(ours) == [None if v is None else repr(v) for v in (bound.eval(row) for row in rows)]
    assert bits(ours) == ["nan", "0.0", "0.0", None, "1.5"]


@pytest.mark.spark
def test_numbers_that_the_optimizer_folds(spark: SparkSession, frame: Any) -> None:
    package = spark._jvm.org.apache.spark.sql.catalyst.expressions
    for number in (package.EulerNumber(), package.Pi()):
        ours = translate(number, {}, SessionConf()).evaluate(normalized(frame.limit(1).toArrow()))
        assert bits(ours) == [repr(number.eval(None))]


def test_documentation_is_current() -> None:
    page = DOCS / "expressions.md"
    assert page.read_text() == documentation(), "run python -m penstock.functions.plan > docs/expressions.md"


@pytest.mark.spark
def test_types_agree_with_pyspark() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema as pyspark_schema
    from pyspark.sql.types import StructType

    text = (
        "b boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, d double, s string, x binary, dt date, "
        "ntz timestamp_ntz, dec decimal(12,3), a array<int>, m map<string,array<double>>, st struct<a:int,b:string>"
    )
    struct = StructType.fromDDL(text)
    ours = to_arrow_schema(struct.json())
    theirs = pyspark_schema(struct)
    assert [field.name for field in ours] == [field.name for field in theirs]
    assert [str(field.type) for field in ours] == [str(field.type) for field in theirs]
    parsed = [to_catalyst_json(field.type) for field in ours]
    assert [to_arrow_type(data_type) for data_type in parsed] == [field.type for field in ours]
    for field, data_type in zip(struct.fields, parsed, strict=True):
        assert json.loads(field.dataType.json()) == data_type


def test_timestamps_are_always_utc_and_others_are_refused() -> None:
    assert to_arrow_type("timestamp") == pa.timestamp("us", tz="UTC")
    assert to_arrow_type("interval day to second") == pa.duration("us")
    for name in ("variant", "interval", "interval year to month"):
        with pytest.raises(NotSupported, match=name):
            to_arrow_type(name)
    struct = '{"type":"struct","fields":[{"name":"v","type":"variant","nullable":true,"metadata":{}}]}'
    with pytest.raises(NotSupported, match="column v"):
        to_arrow_schema(struct)
