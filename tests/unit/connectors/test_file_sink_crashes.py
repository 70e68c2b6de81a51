"""File sinks whose driver dies at every file operation: each row is seen once, and never twice on the way."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.connectors.files.private_directory import HOME
from penstock.connectors.files.sink import FileSink
from penstock.connectors.files.sink_committer import FileSinkCommitter
from penstock.errors import SinkError
from penstock.model.commits import EpochCommit
from tests.support.connectors.file_sinks import KINDS, Deaths, Killed, batch, mortal, sink, visible, visible_files
from tests.support.connectors.kits import QUERY_ID, stage
from tests.support.effort import some

ROLL_S = 100.0
EPOCH_S = 60.0
FORMS = {
    "plain": (False, False),
    "partitioned": (True, False),
    "rolled": (False, True),
    "partitioned-rolled": (True, True),
}


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Deaths:
    monkeypatch.setattr(FileSinkCommitter, "_set_timer", lambda self, least_s: None)
    with mortal(monkeypatch) as counted:
        yield counted  # type: ignore[misc]


@dataclass
class Query:
    """Commits epochs through one driver after another; ``after_death``: looks at what a reader sees meanwhile."""

    made: FileSink
    rolled: bool
    deaths: Deaths
    now_s: float = field(default_factory=time.time)
    committed: Counter[int] = field(default_factory=Counter)
    pending: list[tuple[EpochCommit, list[int]]] = field(default_factory=list)
    last: EpochCommit | None = None
    kills: int = 0

    @property
    def out(self) -> Path:
        return Path(self.made.path)

    def driver(self) -> FileSinkCommitter:
        interval_s = ROLL_S if self.rolled else 0.0
        driver = FileSinkCommitter(self.out, self.made.file_format, interval_s, 1 << 20, lambda: self.now_s)
        driver.open(QUERY_ID)
        return driver

    def check(self) -> None:
        """Check that no row is visible twice and that only committed ones are; without rolls, that all of these are."""
        seen = visible(self.out, self.made.file_format)
        handed_over = self.committed + Counter(v for _, values in self.pending for v in values)
        assert not seen - handed_over, f"seen too often or too early: {seen - handed_over}"
        if not self.rolled:
            assert not self.committed - seen, f"committed and not seen: {self.committed - seen}"

    def epoch(self, number: int, rows: dict[int, list[int]], kind: str, partitions: int) -> None:
        batches = {subtask: batch(*values, kind=kind, partitions=partitions) for subtask, values in rows.items()}
        permit = stage(self.made, batches, number, generation=self.kills + number)
        self.pending.append((permit, [value for values in rows.values() for value in values]))

    def alive(self, work: Callable[[FileSinkCommitter], None]) -> None:
        """Does it with drivers that die; each looks first at what the last one left."""
        while True:
            self.deaths.armed = True
            try:
                driver = self.driver()
                if self.last is not None:
                    driver.commit(self.last)  # its outcome may not have been logged
                for permit, values in list(self.pending):
                    driver.commit(permit)
                    self.last = permit
                    self.pending.pop(0)
                    self.committed.update(values)
                    self.now_s += EPOCH_S
                driver.abandon(self.kills)
                work(driver)
                return
            except Killed:
                self.kills += 1
            finally:
                self.deaths.armed = False
            self.check()

    def end(self) -> None:
        self.alive(lambda driver: driver.close())
        assert visible(self.out, self.made.file_format) == self.committed
        private = self.out / HOME
        left = [p.relative_to(private).as_posix() for p in private.rglob("*") if p.is_file()]
        assert [name for name in left if not name.startswith(("owner.json", "kept-epochs/e", ".owner"))] == []


def run(query: Query, kind: str, partitioned: bool, seed: int, epochs: int) -> None:
    rng = random.Random(seed)
    value = 0
    for number in range(1, epochs + 1):
        rows: dict[int, list[int]] = {}
        for subtask in range(3):
            if count := rng.randrange(4):
                rows[subtask] = list(range(value, value + count))
                value += count
        if rows:
            query.epoch(number, rows, kind, 2 if partitioned else 0)
            query.alive(lambda driver: None)
            query.check()
    query.end()


def made(tmp_path: Path, kind: str, partitioned: bool) -> FileSink:
    options = {"header": "true"} if kind == "csv" else {}
    return sink(tmp_path, kind, partitioned, None, **options)


def staged_epochs(path: Path, form: str, deaths: Deaths) -> Callable[[str], Query]:
    """Three epochs of two subtasks, staged once; the function makes a query of its own that is to commit them."""
    partitioned, rolled = FORMS[form]
    template = Query(made(path / "template", "csv", partitioned), rolled, deaths)
    for number in (1, 2, 3):
        rows = {0: [number * 10, number * 10 + 1], 1: [number * 10 + 2, number * 10 + 3]}
        template.epoch(number, rows, "csv", 2 if partitioned else 0)

    def copy(name: str) -> Query:
        shutil.copytree(template.out, path / name)
        sink = made(path / name, "csv", partitioned)
        return Query(sink, rolled, deaths, pending=list(template.pending))

    return copy


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", FORMS)
def test_death_at_every_operation(tmp_path: Path, deaths: Deaths, form: str) -> None:
    copy = staged_epochs(tmp_path, form, deaths)
    calm = copy("calm")
    calm.end()
    operations = deaths.turn
    assert operations > 40
    for strike in range(1, operations + 1):
        deaths.turn, deaths.strikes = 0, lambda turn, strike=strike: turn == strike  # type: ignore[misc]
        query = copy(str(strike))
        query.end()
        assert query.kills == 1
        assert len(visible_files(query.out)) == len(visible_files(calm.out)) or FORMS[form][1]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_deaths_at_random(tmp_path: Path, deaths: Deaths, form: str, kind: str) -> None:
    partitioned, rolled = FORMS[form]
    kills = 0
    for seed in range(3):
        rng = random.Random(seed)
        deaths.strikes = lambda turn, rng=rng: rng.random() < 0.03  # type: ignore[misc]
        deaths.after = seed % 2 == 1
        query = Query(made(tmp_path / str(seed), kind, partitioned), rolled, deaths)
        run(query, kind, partitioned, seed, 5)
        kills += query.kills
    assert kills > 3


@pytest.mark.parametrize("form", FORMS)
def test_drivers_with_other_options_take_over(tmp_path: Path, deaths: Deaths, form: str) -> None:
    """Rolled or not, compressed or not: whatever the last driver began is ended."""
    partitioned, _ = FORMS[form]
    for seed in range(some(6, 2)):
        rng = random.Random(seed)
        query = Query(made(tmp_path / str(seed), "parquet", partitioned), False, deaths)

        def strikes(turn: int, rng: random.Random = rng, query: Query = query) -> bool:
            if rng.random() >= 0.06:
                return False
            query.rolled = rng.random() < 0.5
            codec = rng.choice(["snappy", "none", "gzip"])
            query.made = sink(query.out, "parquet", partitioned, compression=codec)
            return True

        deaths.strikes = strikes
        query.check = lambda query=query: _never_twice(query)  # type: ignore[method-assign, misc]
        run(query, "parquet", partitioned, seed, 4)


def _never_twice(query: Query) -> None:
    seen = visible(query.out, query.made.file_format)
    assert not seen - query.committed - Counter(v for _, values in query.pending for v in values)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", FORMS)
def test_two_drivers_at_once(tmp_path: Path, deaths: Deaths, form: str) -> None:
    """An outdated driver is interrupted at each operation, its successor does everything, and then it goes on."""
    copy = staged_epochs(tmp_path, form, deaths)
    for strike in itertools.count(1):
        query = copy(str(strike))
        interrupted = False

        def interrupt(turn: int, strike: int = strike, query: Query = query) -> bool:
            nonlocal interrupted
            if turn == strike:
                interrupted, deaths.armed = True, False
                _everything(query)
                deaths.armed = True
            return False

        deaths.turn, deaths.strikes, deaths.armed = 0, interrupt, True
        with suppress(SinkError):  # its successor was quicker
            _everything(query)
        deaths.armed = False
        if not interrupted:
            assert strike > 30
            return
        _everything(query)
        expected = Counter(v for _, values in query.pending for v in values)
        assert visible(query.out, query.made.file_format) == expected, f"interrupted at {strike}"


def _everything(query: Query) -> None:
    driver = query.driver()
    for permit, _ in query.pending:
        driver.commit(permit)
        query.now_s += EPOCH_S
    driver.abandon(1)
    driver.close()
