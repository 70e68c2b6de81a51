"""Real locations with something changed, checksums set right or not: what comes out are errors of the tree.

``PENSTOCK_FUZZ_EXAMPLES`` says how many (default 6); see also tests/fuzz.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.snapshots.hostile import (
    Body,
    log_entries,
    put_metadata,
    read_everything,
    replace_section,
    reseal,
    sections,
)
from tests.support.snapshots.portable_kit import Scene, names

EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ_EXAMPLES", "6"))
NUMBERS = [-1, 0, 1, 3, 127, 128, 1 << 31, 1 << 53, 1 << 63, 1 << 64, 1e308, 0.5]
OTHERS = ["", "x", "0", "../x", "/etc", "\ud7ff", "data/1-1-0.arrows", "base", "delta", None, True, [], {}, [[]]]
VALUES = st.sampled_from([*NUMBERS, *OTHERS, {"__blob__": 0}, {"path": "lane/../x"}])
campaign = settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return Scene(tmp_path_factory.mktemp("scene"), rounds=2)


@campaign
@given(data=st.data())
def test_bytes_that_changed(scene: Scene, data: st.DataObject) -> None:
    """Bits flip, files end early, have a part of another one, or change places."""
    with tempfile.TemporaryDirectory() as folder:
        location = Path(shutil.copytree(scene.location, Path(folder, "location")))
        files = names(location)
        for _ in range(data.draw(st.integers(1, 2))):
            path, other = (location / data.draw(st.sampled_from(files)) for _ in range(2))
            content, piece = bytearray(path.read_bytes()), other.read_bytes()
            at = data.draw(st.integers(0, max(0, len(content) - 1)))
            how = data.draw(st.sampled_from(["flip", "cut", "splice", "swap", "remove"]))
            if how == "flip" and content:
                content[at] ^= 1 << data.draw(st.integers(0, 7))
            elif how == "cut":
                del content[at:]
            elif how == "splice":
                content[at:] = piece[data.draw(st.integers(0, len(piece))) :]
            elif how == "swap":
                other.write_bytes(content)
                content = bytearray(piece)
            path.write_bytes(content)
            if how == "remove":
                path.unlink()
                files = names(location)
        read_everything(location, scene.graph)


@campaign
@given(data=st.data())
def test_json_that_was_forged(scene: Scene, data: st.DataObject) -> None:
    """Some value of ``query.json``, an entry of the log or metadata is another one, and all checksums fit."""
    with tempfile.TemporaryDirectory() as folder:
        location = Path(shutil.copytree(scene.location, Path(folder, "location")))
        which = data.draw(st.sampled_from(["query", "log", "metadata", "metadata"]))

        def forge(body: Body) -> None:
            for path in data.draw(st.lists(st.sampled_from(places(body)[1:]), min_size=1, max_size=2)):
                put(body, path, data.draw(st.one_of(st.just(GONE), VALUES)))

        if which == "metadata":
            metadata = json.loads((location / "snapshots/chk-2/metadata.json").read_bytes())
            forge(metadata)
            put_metadata(location, 2, json.dumps(metadata).encode())
        else:
            reseal(
                location / "query.json" if which == "query" else data.draw(st.sampled_from(log_entries(location))),
                forge,
            )
        read_everything(location, scene.graph)


@campaign
@given(data=st.data())
def test_sections_that_were_forged(scene: Scene, data: st.DataObject) -> None:
    """The bytes of a section are others, and its checksum fits."""
    with tempfile.TemporaryDirectory() as folder:
        location = Path(shutil.copytree(scene.location, Path(folder, "location")))
        metadata = json.loads((location / "snapshots/chk-2/metadata.json").read_bytes())
        section = data.draw(st.sampled_from(sections(metadata)))
        content = bytearray((location / section["path"]).read_bytes()[section["offset"] :][: section["length"]])
        for _ in range(data.draw(st.integers(1, 3))):
            at = data.draw(st.integers(0, max(0, len(content) - 1)))
            end = data.draw(st.sampled_from([at + 1, at + 4, len(content)]))
            content[at:end] = data.draw(st.sampled_from([b"", b"\0", b"\xff", b"\1\0\0\0", b"\xff\xff\xff\x7f"]))
        replace_section(location, section, bytes(content))
        put_metadata(location, 2, json.dumps(metadata).encode())
        read_everything(location, scene.graph)


GONE: Any = object()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(inner for key, item in items for inner in places(item, (*path, key)))]


def put(body: Body, path: tuple[Any, ...], value: Any) -> None:
    holder: Any = body
    try:
        for key in path[:-1]:
            holder = holder[key]
        if value is GONE:
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(value)
    except (LookupError, TypeError):
        return  # an earlier change took it away
