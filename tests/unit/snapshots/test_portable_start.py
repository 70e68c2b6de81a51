"""Starting from a portable snapshot without a conversion: what is restored is what a conversion gives."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.api.start_from import parse_start, restored_operators
from penstock.cli.main import app
from penstock.errors import CorruptSnapshot, LocationError, PlanChanged
from penstock.model.job_graph import JobGraph
from penstock.snapshots.fork import Origin, origin_parallelism, precheck_start, start_fork
from penstock.snapshots.location import claim_identity, identity_of, open_location, release_identity
from penstock.snapshots.log.entries import Forked
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.store.store_access import StoreAccess
from tests.support.snapshots.portable_kit import LABEL, Scene, at, restored
from tests.support.snapshots.snapshot_kit import Driver, NoSource, Target, graph
from tests.unit.snapshots.test_portable import fails


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A portable snapshot of parallelism 2, beside what converting it gives; to be read only."""
    directory = tmp_path_factory.mktemp("portable")
    export_snapshot(str(Scene(directory, rounds=2).location), LABEL, directory / "portable")
    shutil.rmtree(directory / "native")
    convert_snapshot(directory / "portable", directory / "back")
    return directory / "portable"


def start(portable: Path, location: Path, job: JobGraph, name: str = "") -> tuple[Driver, Forked | None]:
    """Start like a query: claim the location, and give back what a refused start has claimed."""
    store, origin = open_location(str(location)), Origin(str(portable), name)
    precheck_start(origin, str(location))
    identity = claim_identity(store, identity_of(job, "query-2", "query-1"))
    try:
        begins_with = start_fork(origin, store, identity, job)
    except Exception:
        release_identity(store)
        raise
    return Driver(
        store, Target(), source=NoSource(), parallelism=2, query_id="query-2", forked=begins_with
    ), begins_with


def files(directory: Path) -> list[str]:
    return sorted(path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("name", ["", "chk-2", LABEL])
def test_a_query_restores_what_a_conversion_gives(portable: Path, tmp_path: Path, parallelism: int, name: str) -> None:
    driver, begins_with = start(portable, tmp_path / "here", graph(2), name)
    assert begins_with is not None
    opened = driver.start().opened
    assert (opened.generation, opened.restored, opened.committed_epoch, opened.pending) == (2, 2, 2, ())
    job = at(graph(2), parallelism)
    there = restored(portable.parent / "back", job)
    assert restored(tmp_path / "here", job) == there
    assert any(rows for entry in there if len(entry) == 2 for _, _, rows, _ in entry[1]), "rows in flight are among it"
    again, begins_with = start(portable, tmp_path / "here", graph(2), name)
    assert begins_with is None, "it has begun"
    own = again.start().opened.next_checkpoint
    assert own > 2


def test_what_is_asked_of_it_before_the_start(portable: Path, tmp_path: Path) -> None:
    origin = Origin(str(portable))
    assert origin_parallelism(origin) == 2
    assert set(restored_operators(origin, str(tmp_path / "here"), StoreAccess())) == {"count-1"}
    with pytest.raises(LocationError, match=r"there is no snapshot 'chk-9'; there are: chk-2"):
        start(portable, tmp_path / "here", graph(2), "chk-9")
    with pytest.raises(LocationError, match="is a portable snapshot, where no query runs"):
        parse_start(str(portable), "claim", None)


def test_a_plan_that_has_no_place_for_its_rows_is_refused_before_anything_is_written(
    portable: Path, tmp_path: Path
) -> None:
    job = graph(2)
    moved = replace(job, edges=(replace(job.edges[0], exchange_id="elsewhere"),))
    for changed in (moved, replace(job, max_parallelism=64)):
        with pytest.raises(LocationError) as refused:
            start(portable, tmp_path / "here", changed)
        assert isinstance(refused.value, PlanChanged) == (changed is moved)
        assert files(tmp_path / "here") == []
    assert start(portable, tmp_path / "here", job)[1] is not None


def test_a_damaged_file_is_named_and_nothing_stays(portable: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(portable, damaged)
    (stream,) = damaged.rglob("consumer-00000.arrows")
    stream.write_bytes(stream.read_bytes()[:-1] + b"\7")
    with pytest.raises(CorruptSnapshot, match="consumer-00000"):
        start(damaged, tmp_path / "here", graph(2))
    assert files(tmp_path / "here") == []


def test_one_that_is_interrupted_anywhere_is_completed_by_the_next_start(
    portable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, expected = os.fsync, restored(portable.parent / "back", graph(2))
    steps = 0
    while True:
        here = tmp_path / f"here-{steps}"
        open_location(str(here))
        with monkeypatch.context() as patch:
            patch.setattr(f"{__name__}.release_identity", lambda store: None)  # a driver that is killed
            patch.setattr(os, "fsync", fails(real, steps))
            try:
                driver, _ = start(portable, here, graph(2))
            except (LocationError, OSError):
                driver = None
        if driver is None:
            driver, _ = start(portable, here, graph(2))
        driver.start()
        assert restored(here, graph(2)) == expected
        driver.checkpoint()
        driver.checkpoint()
        assert len([path for path in files(here) if path.startswith("snapshots/")]) >= 2
        steps += 1
        if steps > 12:
            break


def test_fork_takes_the_directory_of_a_portable_snapshot(portable: Path, tmp_path: Path) -> None:
    def fork(name: str, target: str) -> Any:
        return CliRunner().invoke(app, ["snapshot", "fork", str(portable), name, str(tmp_path / target), "--json"])

    said = fork("chk-2", "here")
    assert said.exit_code == 0, said.output
    identity = json.loads(said.stdout)
    assert identity["origin"] == "query-1"
    assert restored(tmp_path / "here", graph(2)) == restored(portable.parent / "back", graph(2))
    assert json.loads(fork(LABEL, "here").stdout) == identity, "nothing happens where it is complete"
    assert SnapshotLog(open_location(str(tmp_path / "here"))).fork_entry() is not None
    wrong = fork("chk-9", "there")
    assert (wrong.exit_code, "there is no snapshot 'chk-9'" in wrong.stderr) == (1, True)
    assert not (tmp_path / "there").exists()
