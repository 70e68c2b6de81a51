"""File sinks that take back epochs, whatever a driver that died has left, and die at it; and forks that share one."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.connectors.files.private_directory import HOME
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.sink_committer import FileSinkCommitter
from penstock.connectors.files.sink_plan import EpochRange, epoch_range_of
from penstock.errors import SinkError
from penstock.model.commits import EpochCommit
from tests.support.connectors.file_sinks import Deaths, Killed, batch, sink, visible, visible_files
from tests.support.connectors.kits import QUERY_ID, stage
from tests.unit.connectors.test_file_sink_crashes import FORMS, Query, deaths, made  # noqa: F401 - the fixture

ABOVE, BELOW = 2, 100
MOMENTS = 12
FORK_ID = "11111111-2222-4333-8444-555555555555"


def rows_of_epoch(number: int) -> dict[int, list[int]]:
    return {0: [number * 10, number * 10 + 1], 1: [number * 10 + 2, number * 10 + 3]}


def values(*epochs: int) -> Counter[int]:
    return Counter(value for number in epochs for some in rows_of_epoch(number).values() for value in some)


def staged(path: Path, form: str, deaths: Deaths) -> Callable[[str], Query]:  # noqa: F811
    """Four epochs, and the same rows as two and two in epochs behind a rollback."""
    partitioned, rolled = FORMS[form]
    template = Query(made(path / "template", "csv", partitioned), rolled, deaths)
    for number, like in ((1, 1), (2, 2), (3, 3), (4, 4), (100, 3), (101, 4)):
        template.epoch(number, rows_of_epoch(like), "csv", 2 if partitioned else 0)

    def copy(name: str) -> Query:
        shutil.copytree(template.out, path / name)
        return Query(made(path / name, "csv", partitioned), rolled, deaths, pending=list(template.pending))

    return copy


def commit(query: Query, numbers: tuple[int, ...]) -> FileSinkCommitter:
    driver = query.driver()
    for permit, _ in query.pending:
        if permit.epoch in numbers:
            driver.commit(permit)
            query.now_s += 60.0
    return driver


def take_back(query: Query) -> str:
    driver = query.driver()
    reason = driver.retraction_problem(ABOVE, BELOW)
    if not reason:
        driver.retract(ABOVE, BELOW)
    return reason


def outcome(query: Query) -> str:
    """Return the output after drivers that die take back the rest of a dead driver, and the query continues."""
    before = {path: path.stat().st_mtime_ns for path in visible_files(query.out)}
    strike = 0
    while True:
        strike += 1
        query.deaths.turn, query.deaths.armed = 0, True
        query.deaths.strikes = lambda turn: turn == strike  # noqa: B023
        with suppress(Killed):
            reason = take_back(query)
            break
    query.deaths.armed = False
    if reason:
        assert {path: path.stat().st_mtime_ns for path in visible_files(query.out)} == before, "nothing has changed"
        return "spans"
    assert not visible(query.out, query.made.file_format) - values(1, 2)
    driver = commit(query, (1, 2))
    driver.abandon(99)
    driver.close()
    assert visible(query.out, query.made.file_format) == values(1, 2)
    commit(query, (100, 101)).close()
    assert visible(query.out, query.made.file_format) == values(1, 2, 3, 4)
    private = query.out / HOME
    left = {path.relative_to(private).parts[0] for path in private.rglob("*") if path.is_file()}
    assert {name for name in left if not name.startswith(".owner")} <= {"owner.json", "kept-epochs"}
    return "taken back"


@pytest.mark.parametrize("form", FORMS)
def test_whatever_a_driver_left_is_taken_back_or_refused_as_a_whole(
    tmp_path: Path,
    deaths: Deaths,  # noqa: F811
    form: str,
) -> None:
    copy = staged(tmp_path, form, deaths)
    deaths.armed = True
    commit(copy("calm"), (1, 2, 3, 4))
    deaths.armed, total = False, deaths.turn
    seen: Counter[str] = Counter()
    for at in [*range(1, total + 1, max(1, total // MOMENTS)), total + 1]:
        query = copy(f"at-{at}")
        deaths.turn, deaths.armed = 0, True
        deaths.strikes = lambda turn, at=at: turn == at  # type: ignore[misc]
        with suppress(Killed):
            commit(query, (1, 2, 3, 4))
        deaths.armed = False
        seen[outcome(query)] += 1
        shutil.rmtree(query.out)
    assert seen["taken back"] > 5
    assert bool(seen["spans"]) == FORMS[form][1]


def test_a_roll_that_spans_the_snapshot_is_refused_by_name(tmp_path: Path, deaths: Deaths) -> None:  # noqa: F811
    query = staged(tmp_path, "rolled", deaths)("out")
    commit(query, (1, 2, 3, 4)).close()
    assert "-e0000000001-e000000000" in take_back(query)
    assert "has rows that were written before the snapshot" in take_back(query)
    assert visible(query.out, query.made.file_format) == values(1, 2, 3, 4)


def test_names_tell_epochs() -> None:
    assert epoch_range_of(f"part-00002-{QUERY_ID}-e0000000007-c000.snappy.parquet", QUERY_ID) == EpochRange(7, 7)
    assert epoch_range_of(f"part-00000-{QUERY_ID}-e0000000007-m001.csv", QUERY_ID) == EpochRange(7, 7)
    assert epoch_range_of(f"part-00000-{QUERY_ID}-r0a1b-e0000000003-e0000000009.json", QUERY_ID) == EpochRange(3, 9)
    assert epoch_range_of(f"part-00000-{QUERY_ID}-r0a1b.json", QUERY_ID) == EpochRange(), "an earlier release's: any"
    for foreign in ("part-00002-x-e0000000007-c000.csv", f"{QUERY_ID}-e0000000007-c000.csv", "notes.txt"):
        assert epoch_range_of(foreign, QUERY_ID) is None


# -- a fork beside its origin ----------------------------------------------------


def fork_of(origin: FileSink, query_id: str = FORK_ID, of: str = QUERY_ID) -> FileSink:
    shared = FileSink(origin.path, origin.file_format, origin.partitions, origin.sizes)
    shared.share(query_id, of)
    return shared


def committer(made_sink: FileSink, query_id: str) -> FileSinkCommitter:
    opened = made_sink.create_committer()
    assert isinstance(opened, FileSinkCommitter)
    opened.open(query_id)
    return opened


def staged_by(made_sink: FileSink, query_id: str, epoch: int, *rows: int) -> EpochCommit:
    return stage(made_sink, {0: batch(*rows)}, epoch, query_id=query_id)


def test_a_fork_and_its_origin_share_a_directory_and_touch_nothing_of_each_other(tmp_path: Path) -> None:
    origin = sink(tmp_path)
    one = committer(origin, QUERY_ID)
    with pytest.raises(SinkError, match=r"is written by another query .*allowSharedSink=true"):
        committer(sink(tmp_path), FORK_ID)
    fork = fork_of(origin)
    two = committer(fork, FORK_ID)
    pending, theirs = staged_by(origin, QUERY_ID, 5, 1, 2), staged_by(fork, FORK_ID, 5, 3)
    two.abandon(99)  # what the fork's older Generations staged, and nobody else's
    one.commit(pending)
    theirs_again = staged_by(fork, FORK_ID, 6, 4)
    one.abandon(99)
    two.commit(theirs_again)
    assert visible(tmp_path, origin.file_format) == Counter([1, 2, 4])
    two.retract(0, 100)
    assert visible(tmp_path, origin.file_format) == Counter([1, 2])
    with pytest.raises(SinkError):
        two.commit(theirs)  # it was abandoned
    one.retract(0, 100)
    assert visible(tmp_path, origin.file_format) == Counter()
    assert committer(fork_of(origin), FORK_ID), "and again at the next start"


def test_kept_files_of_a_fork_are_its_own(tmp_path: Path) -> None:
    from penstock.connectors.files.sink import FileSizes

    sizes = FileSizes(roll_interval_ms=3_600_000)
    origin = sink(tmp_path, sizes=sizes)
    one = committer(origin, QUERY_ID)
    fork = fork_of(origin)
    two = committer(fork, FORK_ID)
    for epoch in (1, 2):
        one.commit(staged_by(origin, QUERY_ID, epoch, epoch))
        two.commit(staged_by(fork, FORK_ID, epoch, epoch + 10))
    two.commit(staged_by(fork, FORK_ID, 9, 19))
    one.commit(staged_by(origin, QUERY_ID, 3, 3))  # its mark is not the fork's
    assert visible(tmp_path, origin.file_format) == Counter()
    one.close()
    assert visible(tmp_path, origin.file_format) == Counter([1, 2, 3])
    two.close()
    assert visible(tmp_path, origin.file_format) == Counter([1, 2, 3, 11, 12, 19])
    assert len(visible_files(tmp_path)) == 2


def test_only_a_fork_of_the_owner_or_of_who_shares_with_it_is_admitted(tmp_path: Path) -> None:
    origin = sink(tmp_path)
    committer(origin, QUERY_ID)
    stranger = "99999999-2222-4333-8444-555555555555"
    with pytest.raises(SinkError, match="is written by another query"):
        committer(fork_of(origin, FORK_ID, of=stranger), FORK_ID)
    committer(fork_of(origin), FORK_ID)
    committer(fork_of(origin, stranger, of=FORK_ID), stranger)
    assert {path.name for path in (tmp_path / HOME / "forks").iterdir()} == {FORK_ID, stranger}
    elsewhere = replace_path(origin, tmp_path / "own")
    elsewhere.share(FORK_ID, QUERY_ID)
    committer(elsewhere, FORK_ID)
    assert (tmp_path / "own" / HOME / "owner.json").exists(), "where it is alone it owns the directory"


def replace_path(made_sink: FileSink, path: Path) -> FileSink:
    return FileSink(str(path), made_sink.file_format, made_sink.partitions, replace(made_sink.sizes))
