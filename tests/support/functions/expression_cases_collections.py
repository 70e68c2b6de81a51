"""Cases over ``relations_nested.collections``."""

# ruff: noqa: E501 - tables of texts
from __future__ import annotations

LISTS = ("i", "d", "s", "st", "ll", "dec")
ELEMENTS = {"i": "y_n", "d": "y_f", "s": "y_w", "st": "y_p", "ll": "y_i"}

ARRAYS = [f"array_contains(x_{t}, {e})" for t, e in ELEMENTS.items()]
ARRAYS += [f"array_position(x_{t}, {e})" for t, e in ELEMENTS.items()]
ARRAYS += [
    f"{f}(x_{t})" for f in ("array_max", "array_min", "sort_array", "reverse", "size", "array_compact") for t in LISTS
]
ARRAYS += [f"sort_array(x_{t}, false)" for t in LISTS] + ["cardinality(x_i)", "array_size(x_s)"]
ARRAYS += ["sort_array(array(coalesce(x_f, 1.0D), 0.0D, -0.0D, coalesce(y_f, 2.0D)))"]
ARRAYS += ["sort_array(array(coalesce(x_f, 1.0D), -0.0D, 0.0D, coalesce(y_f, 2.0D)), false)"]
ARRAYS += ["array(x_n, y_n, 7)", "array(x_p, y_p)", "array(x_i, y_i)", "array(x_f, 1, y_n)"]
PLACES = [
    "x_i[0]",
    "x_i[y_n]",
    "x_st[1].a",
    "x_ll[0][1]",
    "get(x_i, y_n)",
    "element_at(x_i, 1)",
    "element_at(x_i, y_n)",
]
PLACES += [
    "element_at(x_st, -1)",
    "try_element_at(x_s, y_n)",
    "try_element_at(x_s, -2)",
    "x_st.a",
    "x_st.b",
    "x_st.b[0]",
]
PLACES += [
    "slice(x_i, 1, 2)",
    "slice(x_i, y_n, 2)",
    "slice(x_i, -2, y_n)",
    "slice(x_st, -2, 2)",
    "slice(x_d, y_n, y_n)",
]
ARRAYS += ["concat(x_i, y_i)", "concat(x_st, y_st, x_st)", "concat(x_i, array(1L))", "x_s || y_s", "flatten(x_ll)"]
ARRAYS += ["flatten(array(x_i, y_i))", "flatten(array(x_ll, y_ll))", "array_repeat(x_n, y_n)", "array_repeat(x_i, 2)"]
ARRAYS += [f"array_append(x_{t}, {e})" for t, e in ELEMENTS.items()] + [
    "array_prepend(x_i, y_n)",
    "array_prepend(x_st, y_p)",
]
PLACES += [
    "array_insert(x_i, y_n, x_n)",
    "array_insert(x_s, -1, 'new')",
    "array_insert(x_s, 9, y_w)",
    "array_insert(x_st, y_n, y_p)",
]
ARRAYS += [
    "arrays_zip(x_i, y_s)",
    "arrays_zip(x_i, y_i, x_d)",
    "arrays_zip(x_i)",
    "array_join(x_s, ',')",
    "array_join(x_s, y_w, '-')",
]
PLACES += [
    "array_join(x_s, y_w, y_w)",
    "array_join(x_s, y_w)",
    "sequence(x_n, y_n)",
    "sequence(1, y_n, x_n)",
    "sequence(y_n, x_n, -2)",
]
PLACES += [
    "sequence(cast(x_n as tinyint), cast(y_n as tinyint))",
    "sequence(9223372036854775800, 9223372036854775807, 3L)",
]
PLACES += [
    "sequence(-9223372036854775807, 9223372036854775807L * y_n, 9223372036854775806)",
    "array_insert(x_i, y_n, null)",
]

SETS = [f"array_distinct(x_{t})" for t in LISTS]
SETS += [
    f"{f}(x_{t}, y_{t})" for f in ("array_union", "array_intersect", "array_except", "arrays_overlap") for t in LISTS
]
SETS += [f"array_remove(x_{t}, {e})" for t, e in ELEMENTS.items()]
SETS += [
    "array_union(array(x_n), array(y_n))",
    "array_except(x_i, array(1, null))",
    "arrays_overlap(array(x_n), array(y_n))",
]
SETS += ["array_distinct(transform(x_s, e -> cast(e as binary)))"]

MAPS = ["map(x_n, y_w)", "map(1, x_n, y_n, 2)", "map(x_f, 1, y_f, 2)", "map('a', x_i, 'b', y_i)", "map(x_p, 1)"]
MAPS += ["map(x_i, 1)", "map_from_arrays(x_i, y_s)", "map_from_arrays(x_d, y_i)", "map_from_arrays(array(1, 2), x_s)"]
MAPS += ["map_from_entries(x_st)", "map_from_entries(arrays_zip(x_i, y_s))", "map_entries(x_m)", "map_entries(x_fm)"]
MAPS += [
    "map_keys(x_m)",
    "map_values(x_m)",
    "map_keys(x_fm)",
    "map_concat(x_m, y_m)",
    "map_concat(x_fm, y_fm)",
    "map_concat(x_m)",
]
MAPS += ["x_m[y_n]", "x_fm[y_f]", "element_at(x_m, y_n)", "element_at(x_fm, y_f)", "try_element_at(x_m, y_n)", "x_m[1]"]
MAPS += [
    "map_contains_key(x_m, y_n)",
    "map_contains_key(x_fm, y_f)",
    "size(x_m)",
    "cardinality(x_fm)",
    "map(x_i, y_w)[x_i]",
]
MAPS += [
    "str_to_map(x_w)",
    "str_to_map(array_join(x_s, ','), ',', 'a')",
    "str_to_map('a:1,b:2', ',', ':')",
    "str_to_map(concat(x_w, ':', y_w, ',q:1:2'))",
]

COMPARED = [
    ("x_i", "y_i"),
    ("x_d", "y_d"),
    ("x_s", "y_s"),
    ("x_st", "y_st"),
    ("x_ll", "y_ll"),
    ("x_p", "y_p"),
    ("x_dec", "y_dec"),
]
NESTED = [f"{x} {op} {y}" for x, y in COMPARED for op in ("=", "<=>", "!=", "<", ">=")]
NESTED += [f"{f}({x}, {y})" for x, y in COMPARED for f in ("greatest", "least")]
NESTED += [
    "x_i in (y_i, array(1))",
    "x_p in (y_p, named_struct('a', 1, 'b', 'x'))",
    "x_d in (array(0.0D, -0.0D), array(double('NaN')))",
]
NESTED += [
    "x_i in (array(1), array(1, 2, 3), null)",
    "x_i = array(1)",
    "x_p = named_struct('a', 1, 'b', 'x')",
    "coalesce(x_i, y_i)",
]
NESTED += [
    "coalesce(x_i, array(9))",
    "if(x_n > 0, x_i, array(1, 2))",
    "if(x_n > 0, x_m, y_m)",
    "coalesce(x_m, map(1, 'q'))",
]
NESTED += [
    "case when x_n > 0 then x_p when y_n > 0 then named_struct('a', 9, 'b', 'q') end",
    "nullif(x_i, y_i)",
    "nvl2(x_p, x_st, y_st)",
]
NESTED += [
    "array(1, null, 3)",
    "map('a', 1, 'b', null)",
    "named_struct('a', array(1.5D), 'b', map('k', X'00'))",
    "array(array(1.25), null)",
]
NESTED += [
    "struct(x_i, y_m, x_p)",
    "named_struct('q', x_st).q.a",
    "struct(x_p.*)",
    "x_p.b",
    "array(timestamp'2024-01-02 03:04:05', null)",
]
NESTED_CASTS = [
    "cast(x_i as array<string>)",
    "cast(x_i as array<bigint>)",
    "cast(x_i as array<tinyint>)",
    "cast(x_s as array<int>)",
]
NESTED_CASTS += [
    "cast(x_p as struct<q:bigint,r:string>)",
    "cast(x_st as array<struct<a:string,b:string>>)",
    "cast(x_m as map<string,string>)",
]
NESTED_CASTS += [
    "try_cast(x_s as array<double>)",
    "cast(x_fm as map<double,bigint>)",
    "cast(x_ll as array<array<double>>)",
]
NESTED_CASTS += [f"cast(x_{t} as string)" for t in ("i", "s", "st", "ll", "m", "fm", "p", "d", "dec")]
NESTED_CASTS += [
    "cast(x_i as array<smallint>)[0]",
    "cast(x_d as array<float>)",
    "cast(array() as array<int>)",
    "try_cast(x_i as array<tinyint>)",
]

LAMBDAS = [
    "transform(x_i, e -> e + 1)",
    "transform(x_i, (e, k) -> e + k)",
    "transform(x_i, e -> e * y_n)",
    "transform(x_st, e -> e.a)",
]
LAMBDAS += [
    "transform(x_ll, l -> transform(l, e -> e + y_n + size(l)))",
    "transform(x_i, e -> 1)",
    "transform(x_i, e -> x_w)",
]
LAMBDAS += [
    "transform(x_i, e -> named_struct('e', e, 'w', y_w))",
    "transform(x_d, e -> e / y_f)",
    "transform(x_i, e -> 10 / e)",
]
LAMBDAS += [
    "filter(x_i, e -> e > 1)",
    "filter(x_i, (e, k) -> k % 2 = 0)",
    "filter(x_s, e -> e is null)",
    "filter(x_st, e -> e.a = y_n)",
]
LAMBDAS += [
    "filter(x_ll, l -> size(l) > 1)",
    "exists(x_i, e -> e > 2)",
    "exists(x_i, e -> e is null)",
    "exists(x_i, e -> 3 / (e - 1) > 1)",
]
LAMBDAS += [
    "forall(x_i, e -> e > 0)",
    "forall(x_i, e -> e is not null)",
    "forall(x_i, e -> 3 / (e - 3) > 100)",
    "forall(x_i, e -> null)",
]
LAMBDAS += [
    "exists(x_s, e -> exists(y_s, o -> o = e))",
    "exists(x_i, e -> x_n > 0)",
    "aggregate(x_i, 0, (a, e) -> a + e)",
]
LAMBDAS += ["aggregate(x_i, 0L, (a, e) -> a + coalesce(e, 0))", "aggregate(x_d, 0D, (a, e) -> a + e, a -> a * 2)"]
LAMBDAS += ["aggregate(x_s, '', (a, e) -> concat(a, coalesce(e, y_w)))", "reduce(x_i, y_n, (a, e) -> coalesce(e, a))"]
LAMBDAS += [
    "aggregate(x_i, named_struct('n', 0, 's', 0L), (a, e) -> named_struct('n', a.n + 1, 's', a.s + coalesce(e, 0)), a -> a.s / a.n)"
]
LAMBDAS += [
    "aggregate(x_ll, cast(array() as array<int>), (a, e) -> concat(a, coalesce(e, array())))",
    "aggregate(x_i, 100D, (a, e) -> a / e)",
]
LAMBDAS += [
    "zip_with(x_i, y_i, (a, b) -> a + b)",
    "zip_with(x_i, y_s, (a, b) -> struct(a, b))",
    "zip_with(x_i, y_i, (a, b) -> coalesce(a, b, x_n))",
]
LAMBDAS += [
    "map_filter(x_m, (k, v) -> k > 1)",
    "map_filter(x_m, (k, v) -> v = y_w)",
    "transform_values(x_m, (k, v) -> concat(v, k))",
]
LAMBDAS += [
    "transform_keys(x_m, (k, v) -> k + 1)",
    "transform_keys(x_m, (k, v) -> v)",
    "transform_keys(x_m, (k, v) -> k % 2)",
]
LAMBDAS += ["transform_values(x_fm, (k, v) -> k + v + y_n)", "map_zip_with(x_m, y_m, (k, a, b) -> concat(k, a, b))"]
LAMBDAS += ["map_zip_with(x_m, y_m, (k, a, b) -> struct(k, a, b))", "map_zip_with(x_fm, y_fm, (k, a, b) -> a + b)"]
LAMBDAS += [f"array_sort(x_{t})" for t in LISTS]
LAMBDAS += [
    "array_sort(x_i, (a, b) -> case when a is null or b is null then 0 when a < b then 1 when a > b then -1 else 0 end)"
]
LAMBDAS += [
    "array_sort(x_s, (a, b) -> length(coalesce(a, y_w, '')) - length(coalesce(b, y_w, '')))",
    "array_sort(x_i, (a, b) -> coalesce(b % 9, 0) - coalesce(a % 9, 0))",
]
LAMBDAS += [
    "array_sort(concat(x_i, y_i, x_i, array(5, 4, 3, 2, 1, 0, 9, 8)))",
    "array_sort(transform(x_i, e -> e % 3))",
]

HASHES = [f"{f}(x_{t})" for f in ("hash", "xxhash64") for t in ("i", "d", "s", "st", "ll", "dec", "p", "n", "f", "w")]
HASHES += [
    "hash(x_i, y_st, x_w)",
    "xxhash64(x_ll, y_p, x_d)",
    "hash(array(x_i, y_i), array(x_s))",
    "hash(x_p, x_p, null)",
]
HASHES += [
    "hash(cast(x_f as float), cast(x_n as tinyint), cast(x_n as bigint))",
    "hash(transform(x_s, e -> cast(e as binary)))",
]
HASHES += [
    "hash(cast(x_n as decimal(38,3)), cast(y_n as decimal(30,10)))",
    "hash(cast(x_n as timestamp), x_n > 0, repeat(x_w, 7))",
]
