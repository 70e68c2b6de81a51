"""Progress of long work: it rises, ends with all of it, and parts add up."""

from __future__ import annotations

from pathlib import Path

from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.progress_meter import Meter
from tests.support.snapshots.portable_kit import LABEL, Scene


class Told(list[tuple[int, int]]):
    def __call__(self, done: int, total: int) -> None:
        self.append((done, total))

    def check(self) -> int:
        """Check the reports and return their number; the last one is all of the work."""
        [total] = {total for _, total in self}
        done = [done for done, _ in self]
        assert done == sorted(set(done))
        assert done[-1] == total
        return len(done)


def test_parts_add_up_and_never_to_more_than_all() -> None:
    told = Told()
    meter = Meter(10, told)
    one, other = meter.part(6), meter.part(4)
    one.add(2)
    other.add(100)
    one.add(1)
    one.finish()
    assert [done for done, _ in told] == [2, 6, 7, 10]
    meter.finish()
    assert told.check() == 4
    assert not Meter(1).part(1).is_watched


def test_an_export_and_a_conversion_tell_how_far_they_are(tmp_path: Path) -> None:
    scene = Scene(tmp_path, rounds=2)
    exported, converted = Told(), Told()
    manifest = export_snapshot(str(scene.location), LABEL, tmp_path / "portable", progress=exported)
    assert exported.check() >= 4
    convert_snapshot(tmp_path / "portable", tmp_path / "back", progress=converted)
    assert converted.check() >= 2 * len(manifest.files()) - 2
    assert converted[-1][1] == 2 * sum(file.length for file in manifest.files())
