"""Cases over ``lines`` and ``line_fields``."""

from __future__ import annotations

READ = [
    "from_csv(s, 'a string, b string')",
    "from_csv(s, 'a string')",
    "from_csv(s, 'a string, b string, c string, _corrupt_record string')",
    "from_csv(s, 'a int, _corrupt_record string, b string')",
    "from_csv(s, 'a int, b string, c double').b",
    "from_csv(s, 'a int, b string, c double').a",
    "from_csv(s, 'a boolean, b boolean, c boolean, bad string', map('columnNameOfCorruptRecord', 'bad'))",
    "from_csv(s, 'a double, b float, c float', map('nanValue', 'nan', 'nullValue', 'NULL', 'positiveInf', '1'))",
    "from_csv(s, 'a string, b string, _corrupt_record string', map('sep', ';', 'quote', chr(39)))",
    "from_csv(s, 'a string, b string, _corrupt_record string', map('escape', '\"'))",
    "from_csv(s, 'a string, b string', map('escape', '\"', 'emptyValue', 'E', 'nullValue', 'a'))",
    "from_csv(s, 'a string, b int', map('ignoreLeadingWhiteSpace', 'true', 'ignoreTrailingWhiteSpace', 'true'))",
    "from_csv(s, 'a string, b string', map('ignoreLeadingWhiteSpace', 'true', 'delimiter', '\\t'))",
    "from_csv(s, 'a date, b timestamp', map('dateFormat', 'dd/MM/yyyy', 'timestampFormat', 'dd/MM/yyyy HH:mm'))",
    "from_csv(s, 'a timestamp, b timestamp', map('timeZone', 'Asia/Tokyo'))",
    "from_csv(s, 'a timestamp_ntz, b timestamp_ntz', map('timestampNTZFormat', 'dd/MM/yyyy[ HH:mm]'))",
    "from_csv(s, 'a decimal(10,2), b binary, _corrupt_record string')",
]
RAISING = ["from_csv(s, 'a string, b string', map('mode', 'FAILFAST'))"]
TYPES = ("tinyint", "bigint", "float", "double", "boolean", "decimal(5,2)", "date", "timestamp", "timestamp_ntz")
FIELDS = [f"from_csv(s, 'a {name}, _corrupt_record string', map('sep', '|'))" for name in TYPES]
