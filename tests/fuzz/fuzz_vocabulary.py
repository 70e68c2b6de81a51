"""Parts of random plans, see ``fuzz_grammar``: pieces of Spark SQL and of DataFrames' Python."""

from __future__ import annotations

SCHEMA = (
    "ts timestamp, k string, n int, l bigint, y tinyint, d double, f float, m decimal(10,2), b boolean, s string, "
    "dt date, tn timestamp_ntz, bin binary, a array<int>, sa array<string>, st struct<x:int,y:string>, "
    "mp map<string,int>, js string, aa array<array<int>>, big decimal(38,10)"
)
LITERALS = (
    "0", "1", "-1", "3", "127Y", "2147483647", "9223372036854775807L", "1.5", "1e0", "1.5BD", "double('NaN')", "true",
    "false", "null", "''", "'a'", "'abc'", "'1'", "'2024-03-31'", "'2024-03-31 02:30:00'", "'yyyy-MM-dd'", "'%a%'",
    "'day'", "'{\"a\":1}'", "'$.a'", "','", "'UTC'", "'Europe/Berlin'", "date'2024-02-29'",
    "timestamp'2024-03-31 02:30:00'", "timestamp_ntz'2024-03-31 02:30:00'", "interval 1 day", "interval '1' month",
    "interval '1 02:03' day to minute", "interval 1 month 2 days", "X'1F'", "array(1, 2)", "array('a', null)",
    "array()", "map('a', 1)", "map()", "named_struct('x', 1, 'y', 'b')", "time'12:30:00'", "'a' collate utf8_lcase",
    "parse_json('{\"a\":1}')", "x -> x", "x -> x > 1", "x -> x is null", "(x, y) -> x", "(x, y) -> x + y",
    "(k, v) -> v",
)  # fmt: skip
"""Of every type, and lambdas."""
TYPES = (
    "int", "bigint", "tinyint", "smallint", "double", "float", "decimal(5,1)", "decimal(38,18)", "string", "boolean",
    "date", "timestamp", "timestamp_ntz", "binary", "array<bigint>", "map<string,string>",
    "struct<x:bigint,y:string>", "time", "interval day to second", "interval year to month", "interval", "variant",
    "char(3)", "varchar(4)", "string collate utf8_lcase",
)  # fmt: skip
OPERATORS = (
    "+", "-", "*", "/", "%", "div", "=", "<=>", "<", ">=", "!=", "and", "or", "||", "&", "|", "^", "<<", "like",
    "rlike", "in", "ilike", "not like", "is distinct from",
)  # fmt: skip
FORMS = (
    "case when {} then {} else {} end", "case {} when {} then {} end", "{} between {} and {}", "{} is null", "not {}",
    "-{}", "~{}", "{}[{}]", "{}.x", "{} in ({}, {})", "if({}, {}, {})", "try_cast({} as {type})",
    "cast({} as {type})", "cast({} as {type})", "{} :: {type}", "transform({}, x -> {})", "filter({}, x -> {})",
    "exists({}, x -> x = {})", "aggregate({}, {}, (acc, x) -> acc + x)", "struct({}, {})", "array({}, {})",
    "map({}, {})", "named_struct('x', {})", "extract(hour from {})", "extract(day from {})", "{} like {} escape '/'",
    "{} not in (1, 2)", "trim(both {} from {})", "position({} in {})", "{} at time zone 'Europe/Berlin'",
    "from_json({}, 'a int, b array<string>')", "{}:a",
    "from_json({}, 'map<string, timestamp>', map('mode', 'FAILFAST'))", "window({}, '1 minute')",
    "session_window({}, '5 minutes')", "window({}, '1 minute', '20 seconds')", "zip_with({}, {}, (x, y) -> x)",
    "to_json({}, map('pretty', 'true'))", "up({})", "plus({})", "pickled({}, {})", "named({}, n => {})",
    "{} like any ('a%', '%b')", "overlay({} placing {} from 2)",
)  # fmt: skip
"""``{}`` is an expression, ``{type}`` one of ``TYPES``."""
OVER = (
    "{} over (partition by k order by n)", "sum({}) over (order by ts)",
    "row_number() over (partition by {} order by {})", "(select max(n) from b)", "{} in (select n from b)",
    "exists (select 1 from b where b.n = {})",
)  # fmt: skip
AGGREGATES = (
    "count(*)", "count(distinct {}, {})", "sum({}) filter (where {})", "sum(distinct {})", "first({}) ignore nulls",
    "percentile_cont(0.5) within group (order by {})", "listagg({}, ',') within group (order by {})", "mode({})",
    "approx_percentile({}, array(0.1, 0.9))", "grouping_id()", "max(struct({}, {}))", "collect_set({})",
    "avg({}) + {}", "max_by({}, {})", "count({})", "sum({})", "min({})", "max({})", "avg({})", "count(distinct {})",
    "agg_udf({})",
)  # fmt: skip
STEPS = (
    "{df}.where({E})", "{df}.where({E})", "{df}.selectExpr({X})", "{df}.selectExpr({X})", "{df}.selectExpr('*', {E})",
    "{df}.withColumn({c}, F.expr({E}))", "{df}.drop({c})", "{df}.withColumnRenamed({c}, 'renamed')",
    "{df}.distinct()", "{df}.dropDuplicates([{c}])", "{df}.dropDuplicates([{c}, 'ts'])",
    "{df}.dropDuplicatesWithinWatermark([{c}])", "{df}.withWatermark('ts', '1 minute')",
    "{df}.withWatermark('ts', '1 minute')", "{df}.withWatermark({c}, '10 seconds')", "{df}.groupBy({G}).agg({A})",
    "{df}.groupBy({G}).agg({A})", "{df}.groupBy({G}).agg({A})", "{df}.groupBy({G}, {G}).agg({A}, {A})",
    "{df}.withWatermark('ts', '1 minute').groupBy(F.expr(\"window(ts, '1 minute')\"), {G}).agg({A})",
    "{df}.withWatermark('ts', '1 minute').groupBy(F.expr(\"window(ts, '1 minute', '30 seconds')\")).agg({A}, {A})",
    "{df}.withWatermark('ts', '1 minute').groupBy(F.expr(\"session_window(ts, '1 minute')\"), {G}).agg({A})",
    "{df}.withWatermark('ts', '1 minute').groupBy(F.expr('ts'), {G}).agg({A})",
    "{df}.withWatermark('ts', '1 minute').groupBy(F.window('ts', '2 "
    "minutes')).agg({A}).groupBy(F.window('window', '1 hour')).agg({A})",
    "{df}.cube({G}).agg({A})", "{df}.rollup({G}, {G}).agg({A})", "{df}.groupBy({G}).pivot({c}, [1, 2]).agg({A})",
    "{df}.union({df})", "{df}.unionByName({D}, allowMissingColumns=True)", "{df}.union({D})", "{df}.intersect({df})",
    "{df}.exceptAll({df})", "{df}.subtract({D})", "{df}.crossJoin({D})", "{df}.join({D}, {c}, {how})",
    "{df}.join(b, {c}, {how})", "{df}.join(b, F.expr({E}), {how})",
    "{df}.alias('p').join({D}.alias('q'), F.expr('p.k = q.k and p.ts = q.ts'), {how})",
    "{df}.withWatermark('ts', '1 minute').alias('p').join(t.withWatermark('ts', '30 "
    "seconds').alias('q'), F.expr('p.k = q.k and q.ts between p.ts - interval 1 minute and p.ts'), {how})",
    "{df}.orderBy({c})", "{df}.limit(3)", "{df}.offset(2)", "{df}.sample(0.5)", "{df}.repartition(3)",
    "{df}.repartition({c})", "{df}.coalesce(1)", "{df}.hint('broadcast')", "{df}.hint('rebalance')",
    "{df}.sortWithinPartitions({c})", "{df}.alias('z')", "{df}.observe('o', F.count('*'))", "{df}.na.fill(0)",
    "{df}.na.drop()", "{df}.na.replace('a', 'b')", "{df}.repartitionByRange(2, {c})",
    "{df}.unpivot('k', ['n', 'l'], 'name', 'value')", "{df}.to({df}.schema)", "{df}.toDF(*reversed({df}.columns))",
    "{df}.mapInArrow(same, {df}.schema)", "{df}.mapInPandas(same, {df}.schema)", "{df}.select(F.explode({c}))",
    "{df}.select('ts', 'k', F.posexplode_outer({c}))", "{df}.select(F.inline(F.array(F.struct({c}))))",
    "{df}.select(F.stack(F.lit(2), {c}, {c}))", "{df}.groupBy({G}).applyInPandas(frame, {df}.schema)",
    "{df}.groupBy({G}).applyInArrow(frame, {df}.schema)",
    "{df}.groupBy({G}).applyInPandasWithState(stateful, 'k string', 'n int', 'append', 'NoTimeout')",
    "{df}.groupBy({G}).transformWithStateInPandas(Counting(), 'k string, c bigint', 'append', 'None')",
    "{df}.groupBy({G}).cogroup({df}.groupBy({G})).applyInPandas(frame, 'k string')", "{df}.select(row_udf({c}))",
    "{df}.select(plus('n'))", "{df}.lateralJoin(spark.range(2))",
    "{df}.where({E}).select('*', F.lit(1).alias('one'))", "{df}.withColumn('w', F.window('ts', '1 minute'))",
    "{df}.withColumns({{'p': F.expr({E}), 'q': F.expr({E})}})", "{df}.withMetadata({c}, {{'m': 1}})",
    "penstock.named({df}, 'mine')", "penstock.late({df})", "{df}.mapInPandas(broken, 'q int')",
    "{df}.groupBy().agg({A})",
)  # fmt: skip
"""``{df}`` is the plan below, ``{E}`` an expression over it, ``{X}`` several, ``{A}`` an aggregate, ``{G}`` something
to group by, ``{c}`` a column, ``{D}`` another input, ``{how}`` one of ``HOWS``."""
TEXTS = (
    "select {e}, {e} from {v} where {e}", "select * from {v} where {e} order by 1 limit 2",
    "with c as (select * from {v}) select {e} from c",
    "with c as (select * from {v}), e as (select * from c where "
    "{e}) select c.k, e.n from c join e on c.k = e.k and c.ts = e.ts",
    "select k, {a} from {v} group by k having {a} > 1", "select {e} as g, {a} from {v} group by 1",
    "select {a}, {a} from {v}", "select window(ts, '1 minute') w, {a} from {v} group by 1",
    "select k, n, {a} from {v} group by grouping sets ((k), (k, n), ())",
    "select k, {a} from {v} group by k with cube", "select k, {a} from {v} group by all",
    "select distinct {e} from {v}", "select * from {v} lateral view explode({e}) e as x",
    "select k, x from {v} lateral view outer posexplode(a) e as p, x", "select * from {v}, lateral (select {e} as z)",
    "select * from {v}, lateral explode({e})", "select * from {v} join b using (k)",
    "select {e} from {v} left join b on {v}.k = b.k and {e} > 0", "select * from {v} where k in (select k from b)",
    "select * from {v} where exists (select 1 from b where b.k = {v}.k)", "select (select max(n) from b), k from {v}",
    "select * from {v} tablesample (50 percent)",
    "select * from (select k, n, l from {v}) pivot (sum(n) for k in ('a', 'b'))",
    "select k, row_number() over (partition by k order by ts) r from {v}",
    "select {e} from {v} union all select {e} from {v}", "select k from {v} intersect select k from t",
    "select k from {v} except select k from b", "from {v} |> where {e} |> select {e}",
    "from {v} |> aggregate {a} group by k", "select * except (k) from {v}", "select st.*, mp['a'], a[0] from {v}",
    "values (1), (2)", "select * from {v} unpivot (v for name in (n, l))",
    "select /*+ broadcast(b) */ * from {v} natural join b", "select * from range(3)",
    "select sum(n) over w from {v} window w as (partition by k)",
    "select k, collect_list(n) c from {v} group by k order by k",
    "with recursive r as (select 1 as i union all select i + 1 from r where i < 3) select * from r, {v}",
    "select table_udf.* from {v}, lateral two(n) table_udf", "select * from {v} left semi join b on {v}.n = b.n",
    "select * from {v} left anti join t on {v}.k = t.k", "select * from {v} cross join b",
    "select k, sum(c) from (select k, window(ts, '1 minute') w, count(*) c from {v} group by 1, 2) group by k",
    "select * from {v} qualify row_number() over (partition by k order by n) = 1",
    "select transform(a, x -> {e}) from {v}",
    "select session_window(ts, '5 minutes') w, k, {a} from {v} group by 1, 2",
    "select {e} from {v} where {e} is not null and {e} = {e}", "select * from {v} full outer join t on {v}.k = t.k",
    "select try_divide(n, y), {e} from {v} limit 5", "select count(*) from {v}, b",
)  # fmt: skip
"""``{v}`` is a view of a stream, ``{e}`` an expression, ``{a}`` an aggregate."""
HOWS = (
    "inner", "left", "right", "full", "left_semi", "left_anti", "cross",
)  # fmt: skip
