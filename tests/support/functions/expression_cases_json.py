"""Cases over ``documents``, and documents written of other relations."""

from __future__ import annotations

PATHS = [
    '$', '$.a', '$.b', '$.b[0]', '$.b[1]', '$.b[*]', '$.a.b', '$[0]', '$[*]', '$[*].a', '$.*', "$['a']", "$['a b']",
    '$.c.x', '$.c.*', '$[*].b[*].c', '$[*][*]', '$.a[*].b', '$.x.a[1].y[*]', '$.x.a[1].y[2].z', '$.a.b[1].c', 'a',
    '$.', '$..a', '$.b[*].c', '$[0][1]', '$.a ', '$ .a', '$. a', '$[ 0]', "$['*']", '$.a[*].b[*]', '$[1][*]',
    '$.s.q', '$[99999999999]',
]  # fmt: skip
SCHEMAS = [
    'a string', 'a string, _corrupt_record string',
    'a tinyint, b array<int>, c map<string,int>, d date, _corrupt_record string',
    'a smallint, b array<int>, c struct<x:int,y:array<int>>, _corrupt_record string',
    'a int, b array<string>, c struct<x:string>', 'f float, g double, h decimal(10,2), _corrupt_record string',
    't timestamp, d string, a boolean, _corrupt_record string',
    'd timestamp_ntz, t timestamp_ntz, a bigint, _corrupt_record string', 'array<int>',
    'array<struct<a:int,b:string>>', 'map<string,string>', 'map<string,int>', 'array<array<int>>',
    'b array<struct<c:int>>, a int, _corrupt_record string', 'x struct<a:array<string>>, s string',
    'array<struct<b:array<struct<c:int>>>>', 'map<string,struct<x:int>>',
    'b array<map<string,int>>, c map<string,array<int>>, _corrupt_record string',
]  # fmt: skip

TAKEN = [f'get_json_object(s, "{path}")' for path in PATHS] + ["json_array_length(s)", "json_object_keys(s)"]
TAKEN += ["get_json_object(s, if(length(s) > 20, '$.a', '$.b'))"]
READ = [f"from_json(s, '{schema}')" for schema in SCHEMAS]
READ += [
    "from_json(s, 'd date, t timestamp', map('dateFormat', 'MM/dd/yyyy', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss'))",
    "from_json(s, 'a string, bad string', map('columnNameOfCorruptRecord', 'bad', 'allowSingleQuotes', 'false'))",
    "from_json(s, 'f float, a string', map('allowNonNumericNumbers', 'false', 'allowUnquotedControlChars', 'true'))",
    "from_json(s, 'a int', map('mode', 'FAILFAST'))",
    "from_json(s, 'a int, b array<int>').a",
    "from_json(s, 't timestamp', map('timeZone', 'Asia/Tokyo'))",
]
OF_NUMBERS = [
    "to_json(named_struct('a', x_i8, 'b', x_i64, 'c', x_f32, 'd', y_f64, 'e', x_b))",
    "to_json(named_struct('x', x_dec, 'y', x_big, 's', named_struct('q', x_i16)))",
    "to_json(named_struct('a', x_i8, 'b', y_f64), map('ignoreNullFields', 'false'))",
]
OF_TEXTS = [
    "to_json(named_struct('s', s, 'bin', bin, 'n', n))", "to_json(named_struct('s', p, 'z', named_struct('t', s)))",
    "to_json(split(s, ','))", "to_json(named_struct('sp', split(s, ','), 'ä\"b', n))",
    "to_json(from_json(s, 'map<string,array<int>>'))",
    "to_json(from_json(concat('{\"a\":[', n, ',null]}'), 'map<string,array<int>>'))",
]  # fmt: skip
OF_TIMES = [
    "to_json(named_struct('ts', ts, 'ntz', ntz, 'dt', dt))",
    "to_json(named_struct('ts', ts, 'dt', dt), map('timestampFormat', 'dd/MM/yyyy HH:mm', 'dateFormat', 'yy-D'))",
    "to_json(named_struct('ts', ts), map('timeZone', 'Asia/Tokyo'))",
]
