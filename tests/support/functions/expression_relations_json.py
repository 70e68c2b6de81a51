"""Documents, whole and damaged, that JSON functions are compared on."""

from __future__ import annotations

import os
import random

import pyarrow as pa

# fmt: off
DOCUMENTS = [
    '{"a": 1.0e5}', '{"a": {"b" : 1.50}}', '{"a": [1, 2 ,"x"]}', "{'a': 'x'}", '{"a":"\t"}', '{"a":NaN}',
    '{"a":01}', '{"a":1} xyz', '\ufeff{"a":1}', '{"a":"\\ud83d"}', '{"a":true}', '{"a":tru}', '{"a":-INF}',
    '{"a": {"b":x}}', '{"a":1,}', '{"a":"unterminated', '{"a":1', '[{"a":1}]', '  ', 'null', '1', '"x"',
    '{"a":{"b":[1,{"c":2}]}}', '{"A":1}', '{"a":null}', '{"a":1,"a":2}', '{a:1}', '{"a":1//c\n}', '{"a" 1}',
    '{"a":.5}', '{"a":1.}', '{"a":"\\x"}', '{"a":1e400}', '{"a":-0}', '{"a":-0.0}', '{"a":12345678901234567890}',
    '{"a":0.1e-7}', '{"a":100000000.0}', '{"a":"é\\u00e9\\/\\b"}', '{"a":"\x7f\u2028"}',
    '{"a":127,"b":[1,null,3],"c":{"x":1},"d":"2024-01-02"}', '{"a":128,"b":[1,2.5],"c":{"x":"y"},"d":20}',
    '{"a":256,"b":"[1]","c":[],"d":null}', '{"b":[1,[2]],"a":5}', '{"b":{"c":1},"a":5}',
    '{"c":{"x":1,"y":[1,2]},"a":3}', '{"c":{"x":{"z":1}},"a":3}', '[1,2,3]',
    '[{"b":[{"c":1},{"c":2}]},{"b":[{"c":3}]}]', '{"b":[{"c":"x"},{"c":"y"}],"a":-129}', '[[1,2],[3]]',
    '{"d":"2024-01-02T03:04:05Z","t":"2024-01-02 03:04:05","a":1}',
    '{"t":"2024-01-02T03:04:05+01:00","d":"01/02/2024"}', '{"t":1700000000,"d":"2024-1-2"}',
    '{"t":"GMT2024","d":""}', '{"f":1.5,"g":1e39,"h":"1,234.567"}', '{"f":"NaN","g":"-INF","h":12345678.9}',
    '{"f":NaN,"g":-Infinity,"h":0.005}', '{"f":"x","g":1,"h":"abc"}',
    '{"f":16777217,"g":9007199254740993,"h":1e-3}', '{"f":3.4028235677973366e38,"g":0.1,"h":-1.005}',
    '{"b":[],"c":{}}', '{"b":[1,2],"b":[3]}', '{"a b":1,"a.b":2,"":3}', '{"x":{"a":[0,{"y":[10,20,{"z":5}]}]}}',
    '{"s":"x","s":5,"s":{"q":[1 , 2.50,"t\\n"]}}', '{"b":[true,false,null]}', '{"n":null,"a":null}', '"a"',
    '{"a":"x"', '[1,[2,3],{"a":4}]', '{"a":[{"b":1},{"b":[2,3]},{"c":4},{"b":null}]}',
    '{"a":"\\ud83d\\ude00 \\u0041"}', '{"a":"\\u00g1"}', '{"\\u0061":7}', '{"a":+INF}', '{"a":+1}', '{"a":-}',
    '{"a":1e}', '{"a":1.5e+}', '{"a":Infinity}', '{"a":nulll}', '{"a":true1}', '[1 2]', '[1,]', '[,1]', '{,}',
    '{"a":1 "b":2}', '{"a":1,"b":[1,2}', '{"a":[1,x],"b":[2]}', '{"b":[1,x],"a":2}', '{"b":[1,"x],"a":2}',
    '{"c":{"x":1,},"a":2}', '{"c":{"x":tru},"a":2}', '{"c":{"x":"\x01"},"a":2}', '{"b":[1,2],"c":{"x":1}',
    '{"d":"01022024"}', '{"d":"-141427"}', '{"f":1e400,"g":-1e400,"h":1e50}',
]
# fmt: on
_DAMAGE = "{}[]\",:0159-+.eE tfnaINx\\'/\n\tbu\u00e9"
_DAMAGED = int(os.environ.get("PENSTOCK_JSON_DOCUMENTS", "200"))


def _damaged(document: str, chance: random.Random) -> str:
    """The document with a few characters too many, too few, others, or cut off."""
    out = list(document)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        kind, place = chance.random(), chance.randrange(len(out) + 1)
        if kind < 0.35:
            del out[place : place + 1]
        elif kind < 0.7:
            out.insert(place, chance.choice(_DAMAGE))
        elif kind < 0.85:
            out[place : place + 1] = [chance.choice(_DAMAGE)]
        elif kind < 0.93:
            out = out[:place]
        else:
            other = chance.randrange(len(out) + 1)
            out[place:place] = out[min(place, other) : max(place, other)]
    return "".join(out)


def documents() -> pa.Table:
    """Column ``s``: the documents above, and damaged ones; ``PENSTOCK_JSON_DOCUMENTS`` says how many of these."""
    chance = random.Random(4)
    texts = DOCUMENTS + [_damaged(chance.choice(DOCUMENTS), chance) for _ in range(_DAMAGED)]
    return pa.table({"id": pa.array(range(len(texts)), pa.int32()), "s": pa.array([None, *texts[1:]], pa.string())})
