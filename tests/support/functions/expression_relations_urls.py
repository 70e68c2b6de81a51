"""URLs, whole and damaged."""

from __future__ import annotations

import random

import pyarrow as pa

URLS = [
    "http://a.b/c?d=e&f=g#h", "https://user:pw@host.example.com:8080/p/a/t/h?query=string#hash",
    "http://userinfo@spark.apache.org/path?query=1#Ref", "ftp://[::1]:21/x", "http://[::1%eth0]/",
    "http://[1:2:3:4:5:6:7:8]/", "http://[1:2:3:4:5:6:1.2.3.4]/", "http://[fe80::1:2]/a",
    "http://[::ffff:1.2.3.4]:80/", "http://[1::2::3]/", "http://[1:2]/", "http://[]/", "mailto:a@b.c", "urn:isbn:1",
    "a", "", "/", "//", "//h", "///p", "?q", "#f", "a:", "a:#f", "1a:b", "a b", "http://a b/", "http://a/ b",
    "http://a/%20b", "http://a/%2", "http://a/%zz", "http://\xe4.de/\xfc?\xf6#\xdf", "http://a_b/c",
    "http://a_b:80/c", "http://a.1/", "http://1.2.3.4/", "http://1.2.3/", "http://256.1.1.1/", "http://255.249.10.09/",
    "http://250.1.1.1:1", "http://001.2.3.4/", "http://1.2.3.4.5/",
    "http://a-/", "http://-a/", "http://a.b./c", "http://a..b/", "http://a:b@c/", "http://a@b@c/", "http://@h/",
    "http://h:/", "http://h:x/", "http://h:99999999999/", "http://h:80x/", "http://h?x", "http://h#x", "http:///p",
    "http://?q", "http:/p?q#f", "http:p", "x://h/a[b]", "x://h/?a[b]", "x://h/#a[b]", "x://h/a|b", "x://h/a\\b",
    "x://h/^", "x://h/a#b#c", "x://h/?a?b", "x:/a:b", "a/b:c", ":x", "://x", "x+y.z-1:/p", "http://h/\xa0",
    "http://h/\u3000", "http://h/\x85", "http://h/\U0001f600", "http://h/a&b=c&d=e?k=1&k=2&kk=3",
    "http://h/p?k=&a=b", "http://h/p?xk=1&k=2", "http://h/p?k", "http://h/p?a=1&k=%20x&c", "http://a,b/",
    "http://a;b/", "http://$a/", "http://a%41/", "http://%41:80/", "http://u%41@h/", "http://h:-1/",
    "http://0x7f.1/", "http://a.b1/", "http://a.1b/", "http://1a/", "http://1/", "http://a.b:80:90/", "//u@h:1",
    "jdbc:x://h", "http://h/a\tb", "http://h/\n", "http://h/'()*!~",
]  # fmt: skip
_DAMAGE = "htp:/?#@[].%-_a1bA\u00e9 &=|:"


def _damaged(url: str, chance: random.Random) -> str:
    out = list(url)
    for _ in range(chance.choice([1, 1, 2, 3])):
        kind, place = chance.random(), chance.randrange(len(out) + 1)
        out[place : place + (kind < 0.6)] = [] if kind < 0.4 else [chance.choice(_DAMAGE)]
    return "".join(out)


def urls() -> pa.Table:
    """Column ``s``."""
    chance = random.Random(6)
    texts = [None, *URLS, *(_damaged(chance.choice(URLS), chance) for _ in range(200))]
    return pa.table({"id": pa.array(range(len(texts)), pa.int32()), "s": pa.array(texts, pa.string())})
