"""Rows by the leading columns of their keys, in both backends, against a dict."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.state.memory_table import MemoryBackend
from penstock.state.prefix_index import PrefixIndex
from penstock.state.rocksdb_keys import prefix_end
from penstock.state.rocksdb_table import RocksDBBackend
from penstock.state.table import KeyedTable, StateBackend, StoredRows, TableSpec
from penstock.testing.table_kit_data import freeze

SPEC = TableSpec(
    pa.schema([("id", pa.string()), ("f", pa.float64()), ("pos", pa.int64()), ("k", pa.string()), ("v", pa.int64())]),
    key_count=4,
    max_parallelism=128,
    key_group_columns=2,
    prefix=2,
)
Key = tuple[Any, ...]


def columns_of(keys: list[Key], count: int = 4) -> list[pa.Array]:
    kinds = SPEC.key_schema.types[:count]
    return [pa.array([key[position] for key in keys], kind) for position, kind in enumerate(kinds)]


def some_keys(random: Random) -> list[Key]:
    ids, floats, texts = ["a", "b", "\xff", None, ""], [0.0, -0.0, float("nan"), None, 1.0], ["", "x", None]
    return [
        (random.choice(ids), random.choice(floats), random.randrange(4), random.choice(texts))
        for _ in range(random.randrange(1, 40))
    ]


def frozen(key: Key) -> Key:
    return tuple(freeze(part, key=True) for part in key)


def check(table: KeyedTable, model: dict[Key, int], keys: list[Key]) -> None:
    prefixes = list({frozen(key[:2]): key[:2] for key in keys}.items())
    owners, found = table.find_by_prefix(columns_of([key for _, key in prefixes], 2), len(prefixes))
    values = found.values[0].to_arrow(found.rows).to_pylist()
    rows = zip(owners.tolist(), zip(*[key.to_pylist() for key in found.keys], strict=True), values, strict=True)
    got = sorted(((owner, frozen(key), value) for owner, key, value in rows), key=repr)
    assert got == sorted(
        ((owner, key, value) for owner, (name, _) in enumerate(prefixes) for key, value in model.items()
         if key[:2] == name), key=repr
    )  # fmt: skip


def put(table: KeyedTable, keys: list[Key], value: int) -> None:
    with table.edit(columns_of(keys), len(keys)) as groups:
        rows = np.unique(groups.rows)
        groups.values[0].set(rows, pa.array([value] * len(rows)))


@pytest.mark.parametrize("backend", [MemoryBackend, lambda: RocksDBBackend(8 << 20)], ids=["memory", "rocksdb"])
def test_rows_are_found_by_the_beginning_of_their_keys(backend: Any) -> None:
    made: StateBackend = backend()
    for seed in range(12):
        random = Random(seed)
        table, model = made.create_table(f"t{seed}", SPEC), dict[Key, int]()
        for step in range(12):
            keys = some_keys(random)
            kept: tuple[Any, dict[Key, int]] | None = None
            if random.random() < 0.3 and isinstance(made, MemoryBackend):
                kept = table.capture().keep(), dict(model)
            if random.random() < 0.6:
                put(table, keys, step)
                model.update((frozen(key), step) for key in keys)
            else:
                table.remove(columns_of(keys), len(keys))
                for key in keys:
                    model.pop(frozen(key), None)
            if kept is not None and (again := kept[0].restore()) is not None:
                table, model = again, kept[1]
            elif random.random() < 0.2:
                capture = table.capture()
                pieces = [StoredRows(batch, False) for batch in capture.base(0, 127)]
                capture.release()
                table.close()
                table = made.create_table(f"t{seed}-{step}", SPEC)
                table.load(pieces)
            check(table, model, keys)
        table.close()
    made.close()


def test_a_long_chain_is_followed_to_its_end_and_can_lose_any_row() -> None:
    index, random = PrefixIndex(), Random(5)
    index.reserve(3000)
    chains: dict[int, set[int]] = {7: set(), 8: set()}
    free = list(range(3000))
    for _ in range(60):
        random.shuffle(free)
        new, free = free[:40], free[40:]
        hashes = [random.choice([7, 7, 7, 8]) for _ in new]
        index.add(np.array(new), np.array(hashes, np.uint64))
        for row, one in zip(new, hashes, strict=True):
            chains[one].add(row)
        gone = [row for chain in chains.values() for row in chain if random.random() < 0.3]
        random.shuffle(gone)
        index.remove(np.array(gone, np.int64))
        free += gone
        for chain in chains.values():
            chain.difference_update(gone)
        rows, owners = index.find(np.array([8, 9, 7], np.uint64))
        found = [set(rows[owners == owner].tolist()) for owner in range(3)]
        assert found == [chains[8], set(), chains[7]]
        assert len(rows) == sum(map(len, chains.values()))


def test_what_comes_behind_a_prefix() -> None:
    assert (prefix_end(b"a"), prefix_end(b"a\xff"), prefix_end(b"\x00"), prefix_end(b"\xff\xff")) == (
        b"b",
        b"b",
        b"\x01",
        None,
    )
