"""Key columns of a table: the plan stores them; in snapshots of earlier releases they are derived."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from penstock.model.manifest import PlanManifest
from penstock.operators.aggregate.final import TABLE, FinalAggregateSpec
from penstock.snapshots.commands.comparing import compare_snapshots
from penstock.snapshots.commands.opened_location import open_location_to_read
from penstock.snapshots.format.metadata_checks import checked_plan
from penstock.snapshots.format.plan import differences, key_column_count, plan_of
from penstock.snapshots.portable.export import export_snapshot
from tests.support.snapshots.hostile import rewrite_metadata
from tests.support.snapshots.location_kit import Kept
from tests.support.snapshots.snapshot_kit import COUNT, STATE, CountSpec, graph


@dataclass
class KeyedCountSpec(CountSpec):
    """Keyed by what nobody could guess: both columns."""

    count: int = 2

    @property
    def state_keys(self) -> dict[str, int]:
        return {"counts": self.count}


def test_an_aggregation_says_how_many_columns_its_key_has() -> None:
    rows = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])
    spec = FinalAggregateSpec(
        operator_id=COUNT, name="Aggregate", output_schema=rows, input_schema=rows, key_count=2, calls=(), mode="update"
    )
    assert spec.state_keys == {TABLE: 2}


def test_the_plan_stores_the_number_and_it_counts_for_more_than_what_could_be_found() -> None:
    told, found = plan_of(graph(spec=KeyedCountSpec())), plan_of(graph())
    assert told.operators[COUNT]["keys"] == {"counts": 2}
    assert "keys" not in found.operators[COUNT]
    assert key_column_count(told, COUNT, "counts") == 2
    assert key_column_count(found, COUNT, "counts") == 1, "by the columns that rows are hashed by, as before"
    assert msgspec.json.decode(msgspec.json.encode(told), type=PlanManifest) == told


def test_a_state_with_another_key_is_refused_and_an_earlier_plan_fits_either() -> None:
    told, other, earlier = (plan_of(graph(spec=spec)) for spec in (KeyedCountSpec(), KeyedCountSpec(count=1), None))
    assert [line.what for line in differences(told, other)] == ["state of count-1, key columns of counts"]
    assert differences(earlier, told) == differences(told, earlier) == differences(told, told) == []


@pytest.mark.parametrize("count", [-1, len(STATE), 1 << 40])
def test_a_forged_number_is_refused(count: int) -> None:
    plan = plan_of(graph(spec=KeyedCountSpec(count=count)))
    with pytest.raises(ValueError, match="keys"):
        checked_plan(plan)


def test_diff_and_export_go_by_it(tmp_path: Path) -> None:
    """If both columns were the key, a changed count would be another row. The key is the first: it is a change."""
    kept = Kept(tmp_path / "location")
    kept.put({1: 10, 2: 20})
    first = kept.snapshot()
    kept.put({2: 21})
    second = kept.snapshot()
    opened = open_location_to_read(str(kept.location))
    (table,) = compare_snapshots(opened, opened.record(f"chk-{first}"), opened.record(f"chk-{second}")).tables
    assert (table.keys, table.added, table.changed, table.removed) == (["key"], 0, 1, 0)

    for checkpoint in (first, second):
        tell_key(kept.location, checkpoint, 2)
    opened = open_location_to_read(str(kept.location))
    (table,) = compare_snapshots(opened, opened.record(f"chk-{first}"), opened.record(f"chk-{second}")).tables
    assert (table.keys, table.added, table.changed) == (["key", "count"], 1, 0)
    manifest = export_snapshot(str(kept.location), f"chk-{second}", tmp_path / "portable")
    assert [table.key_columns for table in manifest.tables] == [2]


def tell_key(location: Path, checkpoint: int, count: int) -> None:
    """Write it into the plan of a snapshot, and what checksums that changes into the log."""

    def change(metadata: dict[str, object]) -> None:
        plan = json.loads(json.dumps(metadata["plan"]))
        plan["operators"][COUNT]["keys"] = {"counts": count}
        metadata["plan"] = plan

    rewrite_metadata(location, checkpoint, change)
