"""Threads that decode the same type for the first time at the same moment."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.places import ROOT

SOURCES = ROOT / "src"
FIRST_USES = """
import sys, threading
import msgspec
from penstock import decoding

sys.setswitchinterval(1e-6)
VALUE = {"g19": {"a": [1]}, "below": {"f9": 2}}
USES = {
    "decode_json": lambda kind: decoding.decode_json(msgspec.json.encode(VALUE), kind),
    "json_decoder": lambda kind: decoding.json_decoder(kind).decode(msgspec.json.encode(VALUE)),
    "decode_msgpack": lambda kind: decoding.decode_msgpack(msgspec.msgpack.encode(VALUE), kind),
    "msgpack_decoder": lambda kind: decoding.msgpack_decoder(kind).decode(msgspec.msgpack.encode(VALUE)),
    "convert": lambda kind: decoding.convert(VALUE, kind),
}
use = USES[sys.argv[1]]
for _ in range(100):
    below = msgspec.defstruct("Below", [(f"f{n}", int, 0) for n in range(10)])
    fields = [(f"g{n}", dict[str, list[int]], msgspec.field(default_factory=dict)) for n in range(20)]
    kind = msgspec.defstruct("Outer", [*fields, ("below", below, None)])
    ready = threading.Barrier(4)
    found = []

    def first_use():
        ready.wait()
        found.append(use(kind))

    threads = [threading.Thread(target=first_use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(one.g19, one.below.f9) for one in found] == [({"a": [1]}, 2)] * 4, found
"""


@pytest.mark.parametrize("use", ["decode_json", "json_decoder", "decode_msgpack", "msgpack_decoder", "convert"])
def test_the_first_use_of_a_type_in_several_threads(use: str) -> None:
    """Runs in another process: without the lock it ends with SIGSEGV."""
    ran = subprocess.run([sys.executable, "-c", FIRST_USES, use], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, f"{ran.returncode}: {ran.stderr[-2000:]}"


def test_no_other_module_decodes_by_types() -> None:
    typed = re.compile(
        r"msgspec\.(?:convert\(|(?:json|msgpack)\.(?:Decoder\(|decode\([^\n]*type=))|msgspec import .*\bconvert"
    )
    found = [path.name for path in SOURCES.rglob("*.py") if typed.search(path.read_text())]
    assert found == ["decoding.py"]
