"""Credentials and settings of an object store: how they are given, and that they are not passed on."""

from __future__ import annotations

import msgspec
import pytest

from penstock.errors import ConfigError
from penstock.snapshots.store.object_store import _MAX_REASON, S3Store
from penstock.snapshots.store.store_access import StoreAccess, parse_access

HUSH = "a-secret-that-nobody-may-see"
KEYS = {"s3.accesskey": "key", "S3.SecretKey": HUSH}


def test_options_are_read_in_any_case_and_others_passed_over() -> None:
    said = {**KEYS, "s3.endpoint": " https://store:9000 ", "s3.ALLOWHTTP": "True", "parallelism": "2", "s3.region": ""}
    access = parse_access(said)
    assert access == StoreAccess("https://store:9000", None, "key", HUSH, None, True, None)
    assert parse_access({}) == StoreAccess()


@pytest.mark.parametrize(
    ("said", "what"),
    [
        (
            {"s3.secret": HUSH},
            r"unknown option spark.penstock.s3.secret; did you mean spark.penstock.s3.secretKey\? Options of object",
        ),
        ({"s3.secretKey": HUSH}, "belong together"),
        ({"s3.sessionToken": HUSH}, "goes with"),
        ({"s3.allowHttp": "perhaps"}, "choose true or false"),
        ({"s3.endpoint": f"https://key:{HUSH}@store"}, "keys do not belong into it"),
        ({"s3.endpoint": "store:9000"}, "is no https://host:port"),
    ],
)
def test_what_cannot_be_meant_is_refused_without_showing_it(said: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        parse_access(said)
    assert HUSH not in str(caught.value)


def test_it_travels_whole_and_does_not_show() -> None:
    access = parse_access({**KEYS, "s3.sessionToken": "a-token"})
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(access), type=StoreAccess) == access
    for shown in (repr(access), str(access), f"{access}", repr([access])):
        assert HUSH not in shown
        assert "a-token" not in shown
    assert access.without_secrets(f"the server said {HUSH} and a-token") == "the server said *** and ***"


def test_keys_are_removed_before_an_error_of_a_store_is_cut() -> None:
    store = S3Store("s3://bucket/prefix", parse_access({**KEYS, "s3.region": "us-east-1"}))
    shown = store._reason(ValueError("x" * (_MAX_REASON - len(HUSH) // 2) + HUSH))
    assert shown == "x" * (_MAX_REASON - len(HUSH) // 2) + "***"[: len(HUSH) // 2]
    assert "token=***" in store._reason(ValueError("cannot get https://host/?token=abc"))
