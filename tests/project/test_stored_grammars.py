"""Data at a location may be forged. So each stored text has a grammar or a limit, and each stored number has bounds."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec
from msgspec import inspect

import penstock.connectors
import penstock.model
import penstock.snapshots

STORED = ("penstock.connectors", "penstock.model", "penstock.snapshots")
SHOWN = {
    *(
        "bottleneck",
        "comparing",
        "listing",
        "location_cache",
        "snapshot_sizes",
        "messages",
        "positions",
        "sharing",
        "showing",
        "verifying",
    ),
    "store_access",
}
"""Modules of classes that no location has: results of commands, a user's own cache, and what the driver tells slots."""
REASONS = {
    "Split": {
        "spec": "of a source: SplitForm, or _FileSpec",
        "position": "of a source: SplitForm, or _FilePosition",
    },
    "_FileSpec": {
        "path": "only what the source's own path and options list is read",
        "root": "tells the columns of a path, and opens nothing",
        "partition": "values of columns",
    },
    "_PlainMessage": {"fields": "values of a user's own class"},
    "MetadataRef": {"path": "Catalog reads the place where a snapshot is described, and no other"},
    "SectionRef": {"path": "metadata_checks demands the name of a data file"},
    "FileRef": {"path": "portable.manifest_checks demands a clean relative path"},
    "SubtaskManifest": {"scalars": "the operator checks its own"},
    "ScalarShare": {"scalars": "the operator checks its own"},
    "SourceManifest": {"state": "the source checks its own"},
    "PlanManifest": dict.fromkeys(("operators", "edges"), "metadata_checks.Operator and Edge"),
    "QueryIdentity": dict.fromkeys(("operators", "edges"), "metadata_checks.Operator and Edge"),
}
"""By class and field: why anything may be there."""


def test_every_text_and_number_has_a_grammar() -> None:
    """A new class or field fails here until it has a grammar, or its reason is in ``REASONS``."""
    seen = set()
    for package in (penstock.connectors, penstock.model, penstock.snapshots):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for kind in every(msgspec.Struct):
        module = kind.__module__.rpartition(".")[2]
        if kind.__module__.startswith(STORED) and module not in SHOWN:
            free = {field.name for field in inspect.type_info(kind).fields if takes_anything(field.type)}
            assert free == set(REASONS.get(kind.__name__, {})), f"{kind.__module__}.{kind.__name__}"
            seen.add(kind.__name__)
    assert seen > set(REASONS)


def every(kind: type) -> Iterator[type]:
    for inner in kind.__subclasses__():
        yield inner
        yield from every(inner)


def takes_anything(kind: inspect.Type) -> bool:
    match kind:
        case inspect.StrType():
            return kind.pattern is None and kind.max_length is None
        case inspect.IntType():
            return (kind.ge is None and kind.gt is None) or (kind.le is None and kind.lt is None)
        case inspect.AnyType():
            return True
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType():
            return takes_anything(kind.item_type)
        case inspect.TupleType():
            return any(map(takes_anything, kind.item_types))
        case inspect.DictType():
            return takes_anything(kind.key_type) or takes_anything(kind.value_type)
        case inspect.UnionType():
            return any(map(takes_anything, kind.types))
    return False
