"""Cases over ``relations.numbers``."""

# ruff: noqa: E501 - tables of texts

from __future__ import annotations

INTEGERS = ("i8", "i16", "i32", "i64")
FLOATS = ("f32", "f64")
DECIMALS = ("dec", "big")
NUMBERS = INTEGERS + FLOATS
ATOMIC = ("b", *NUMBERS, *DECIMALS)

ARITHMETIC = [f"x_{t} {op} y_{t}" for t in NUMBERS for op in "+-*"]
ARITHMETIC += [f"x_{t} % y_{t}" for t in NUMBERS]
ARITHMETIC += [f"pmod(x_{t}, y_{t})" for t in NUMBERS]
ARITHMETIC += [f"x_{t} div y_{t}" for t in INTEGERS]
ARITHMETIC += ["x_f64 / y_f64", "x_f32 / y_f32", "x_i32 / y_i32", "x_i64 / y_f32"]
ARITHMETIC += [f"-x_{t}" for t in NUMBERS] + [f"abs(x_{t})" for t in NUMBERS]
ARITHMETIC += [f"try_{f}(x_{t}, y_{t})" for f in ("add", "subtract", "multiply", "mod") for t in ("i8", "i64", "f64")]
ARITHMETIC += ["try_divide(x_i32, y_i32)", "try_divide(x_f64, y_f64)"]
ARITHMETIC += [f"x_{t} {op} y_{t}" for t in INTEGERS for op in "&|^"] + [f"~x_{t}" for t in INTEGERS]
ARITHMETIC += ["x_i32 + y_i64 * 2", "x_i8 + 1", "(x_i32 + 1) / (y_f64 - 2.5D)"]
ARITHMETIC += [f"{x} {op} {c}" for x, c in (("x_i64", "-1L"), ("x_i32", "7")) for op in ("%", "div", "/")]
ARITHMETIC += ["pmod(x_i64, -3L)", "x_f64 % 0.5D", "x_i64 % 0L", "x_i8 div cast(-1 as tinyint)", "x_f64 / 0.0D"]
ARITHMETIC += ["x_i64 - 0L", "x_i8 + 0Y", "x_f64 + 0.0D", "0L - x_i64", "(x_i64 + 1) * (x_i64 + 1)"]

COMPARISONS = [f"x_{t} {op} y_{t}" for t in ATOMIC for op in ("=", "<=>", "!=", "<", "<=", ">", ">=")]
COMPARISONS += ["x_i32 = 3", "x_f64 > 0.0D", "x_f64 = double('NaN')", "x_f64 <= double('NaN')", "x_i8 < y_i64"]
COMPARISONS += ["x_i32 in (1, 3, null)", "x_i32 in (1, 3)", "x_f64 in (0.0D, double('NaN'))", "x_f64 in (-0.0D, 2.5D)"]
COMPARISONS += ["x_i64 in (y_i64, 3, null)", "x_f64 in (y_f64, 1.0D)", "x_b in (true)", "x_dec in (2.5, 3.00)"]
MANY = ", ".join(f"{i}" for i in range(1, 14))
COMPARISONS += [f"x_i32 in ({MANY})", f"x_i8 in ({MANY}, null)", f"x_f64 in ({MANY}, 0.0D, double('NaN'))"]
COMPARISONS += [f"x_f64 in ({MANY}, 2.5D)", f"x_f32 in ({MANY}, float('NaN'), null)", f"x_dec in ({MANY})"]
COMPARISONS += [f"{f}(x_{t}, y_{t})" for f in ("greatest", "least") for t in ATOMIC]
COMPARISONS += ["greatest(x_i32, y_i32, 2)", "least(x_f64, y_f64, x_f32)"]

LOGIC = ["x_b and y_b", "x_b or y_b", "not x_b", "x_b is null", "x_f64 is not null", "isnan(x_f64)", "isnan(x_f32)"]
LOGIC += ["nanvl(x_f64, y_f64)", "nanvl(x_f32, 1.0F)", "coalesce(x_i32, y_i32)", "coalesce(x_i32, y_i64, 9)"]
LOGIC += ["nvl(x_f64, 0)", "nullif(x_f64, y_f64)", "if(x_b, x_i32, y_i32)", "nvl2(x_i32, 1, 2)", "zeroifnull(x_i32)"]
LOGIC += ["case when x_i32 > 0 then 'a' when x_i32 < 0 then 'b' end", "case x_i32 when 1 then 1.5D else x_f64 end"]
LOGIC += ["case when x_b then x_dec when y_b then y_dec else 1.50 end", "1", "null", "true", "1.5D", "1.25", "-0.0D"]
LOGIC += ["named_struct('a', x_i32, 'b', x_f64)", "if(x_b, named_struct('a', x_i32), named_struct('a', y_i32)).a"]
LOGIC += ["double('NaN')", "float('-Infinity')", "'text'", "X'00ff'", "cast(null as string)", "7S", "9L"]

DECIMALS_CASES = [
    f"{x} {op} {y}" for op in "+-*" for x, y in (("x_dec", "y_dec"), ("x_big", "y_big"), ("x_dec", "y_big"))
]
DECIMALS_CASES += [
    "-x_dec",
    "abs(x_dec)",
    "-cast(x_i64 as decimal(34,4))",
    "abs(cast(x_i64 as decimal(34,4)))",
    "x_dec * 2",
    "x_dec + x_i32",
    "try_add(x_big, y_big)",
    "x_i64 * x_dec",
]

DIVISIONS = [f"{x} {op} {y}" for op in ("/", "div", "%") for x in ("x_dec", "x_big") for y in ("y_dec", "y_big")]
DIVISIONS += [f"pmod({x}, {y})" for x in ("x_dec", "x_big") for y in ("y_dec", "y_big")]
DIVISIONS += [
    "try_divide(x_dec, y_dec)",
    "try_mod(x_dec, y_dec)",
    "x_dec / 3",
    "x_i32 / y_dec",
    "x_big / 7.0",
    "x_dec % 0.3",
]
DIVISIONS += ["cast(x_big as decimal(38,18)) / cast(y_dec as decimal(38,18))", "cast(x_dec as decimal(38,30)) / y_dec"]
DIVISIONS += ["cast(x_dec as decimal(38,0)) div cast(y_dec as decimal(38,2))", "x_i64 div y_dec", "1 / (x_dec - y_dec)"]

ROUNDS = [f"{f}(x_{t}, {n})" for f in ("round", "bround") for t in ("i8", "i64") for n in (-1, -2, -18, -19, -25, 3)]
ROUNDS += [f"{f}(x_{t}, -4)" for f in ("round", "bround") for t in ("i16", "i32")]
ROUNDS += [f"{f}(x_{t}, {n})" for f in ("round", "bround") for t in FLOATS for n in (0, 1, -5, 22, 30)]
ROUNDS += [f"{f}(x_{t}, {n})" for f in ("round", "ceil", "floor") for t in DECIMALS for n in (0, 1, -3, -30)] + [
    "bround(x_dec, 1)"
]
ROUNDS += [f"{f}(x_{t})" for f in ("ceil", "floor", "bround") for t in ("i32", *FLOATS, *DECIMALS)]
ROUNDS += [
    "round(x_f64 / 7, 3)",
    "round(y_f32 * 0.37, 2)",
    "ceil(x_i32, -2)",
    "floor(x_i64, -1)",
    "bround(x_i32 + 0.5, 0)",
]

FUNCTIONS = [
    f"{f}(x_{t})" for f in ("sqrt", "rint", "sign", "degrees", "radians") for t in ("i32", "f32", "f64", "dec")
]
FUNCTIONS += [f"x_{t} {op} y_i32" for t in INTEGERS for op in ("<<", ">>", ">>>")] + ["shiftleft(x_i64, y_i8)"]
FUNCTIONS += [f"bit_count(x_{t})" for t in ("b", *INTEGERS)] + [f"bit_get(x_{t}, pmod(y_i32, 8))" for t in INTEGERS]
FUNCTIONS += [
    "bit_get(x_i64, y_i32)",
    "getbit(x_i8, 8)",
    "factorial(x_i8)",
    "factorial(x_i32)",
    "factorial(pmod(y_i32, 25))",
]
FUNCTIONS += [
    "width_bucket(x_f64, y_f64, 10, 5)",
    "width_bucket(x_f64, -3, y_f64, 4)",
    "width_bucket(x_i32, 5, -5, y_i64)",
]
FUNCTIONS += [
    "width_bucket(2.5, x_f64, y_f64, 7)",
    "hex(x_i64)",
    "hex(x_i8)",
    "bin(x_i64)",
    "bin(x_i32)",
    "unhex(hex(x_i64))",
]
FUNCTIONS += [
    "conv(x_i64, 10, 16)",
    "conv(x_i64, 10, -2)",
    "conv(x_i32, 16, 36)",
    "conv(x_i32, 10, y_i32)",
    "e()",
    "pi()",
]

STRICT_MATH = [f"{f}(x_{t})" for f in (
    "exp", "expm1", "ln", "log10", "log2", "log1p", "cbrt", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh",
    "atanh") for t in ("f64", "i8")]  # fmt: skip
STRICT_MATH += [
    f"{f}({x})" for f in ("asinh", "acosh", "atanh", "ln") for x in ("x_f64 / 3", "1 + x_i8 / 7", "x_i8 / 130D")
]
STRICT_MATH += [
    "pow(x_f64, y_f64)",
    "power(x_i8, y_i8)",
    "pow(x_dec, 0.5)",
    "hypot(x_f64, y_f64)",
    "atan2(x_f64, y_f64)",
]
STRICT_MATH += ["log(x_f64, y_f64)", "log(2, x_i32)", "log(x_dec)", "hypot(x_i32, y_i8)", "exp(x_dec)"]

HASHES = [f"{f}(x_{t}, y_{t})" for f in ("hash", "xxhash64") for t in ATOMIC]

INTEGRAL = {"i8": "tinyint", "i16": "smallint", "i32": "int", "i64": "bigint"}
PLAIN = {"b": "boolean", **INTEGRAL, "f32": "float", "f64": "double"}
CASTS = [f"cast(x_{t} as {name})" for t in PLAIN for name in PLAIN.values() if PLAIN[t] != name]
CASTS += [f"try_cast(x_{t} as {name})" for t in ("i64", "f32", "f64") for name in INTEGRAL.values() if PLAIN[t] != name]
CASTS += [f"cast(x_{t} as string)" for t in ("b", *NUMBERS, *DECIMALS)]
CASTS += [f"cast(x_{t} as {name})" for t in DECIMALS for name in PLAIN.values()]
CASTS += [f"cast(x_{t} as decimal({p}))" for t in ("b", *NUMBERS, *DECIMALS) for p in ("3,1", "12,4", "20,0", "38,18")]
CASTS += ["try_cast(x_big as decimal(5,2))", "try_cast(x_big as int)", "cast(x_big as decimal(38,2))"]
CASTS += [f"cast(x_{t} as timestamp)" for t in (*INTEGRAL, *FLOATS)]
CASTS += [
    "timestamp_seconds(x_i64)",
    "timestamp_seconds(x_i32)",
    "timestamp_seconds(x_f64)",
    "timestamp_seconds(x_f32)",
]
CASTS += ["timestamp_millis(x_i64)", "timestamp_micros(x_i64)", "timestamp_millis(x_i16)", "date_from_unix_date(x_i32)"]

CASTS += ["cast(x_f64 * y_f32 as string)", "cast(try_divide(x_f32, 3) as string)", "try_cast(x_f64 as decimal(4,3))"]
CASTS += ["cast(try_divide(x_f64, 3) as decimal(38,20))"]

GUARDS = [
    "case when y_i32 != 0 then x_i32 / y_i32 end",
    "case when y_i64 != 0 and x_i64 < 100 and x_i64 > -100 then x_i64 + 1 when x_b then x_i64 end",
    "if(y_i32 = 0, -1, x_i32 % y_i32)",
    "coalesce(x_b, x_i32 + y_i32 > 0)",
    "coalesce(x_i32, y_i32 + y_i32)",
    "y_i32 != 0 and x_i32 / y_i32 > 1",
    "y_i32 = 0 or x_i32 % y_i32 = 0",
    "x_b and (y_b or x_i32 + y_i32 > 0)",
    "case when x_i32 > 0 then case when y_i32 > 3 then 0 else x_i32 + y_i32 end else -1 end",
    "nanvl(x_f64, y_f64 / x_f64)",
    "x_i32 + (y_i32 + y_i32)",
    "x_i32 in (3, x_i32 + y_i32, 1)",
    "(x_i32 / y_i32) / (x_i32 - x_i32)",
    "greatest(x_i32, x_i32 + y_i32)",
    "x_i32 <=> x_i32 + y_i32",
]
"""Rows that a guard excludes must not raise, and all others must."""
