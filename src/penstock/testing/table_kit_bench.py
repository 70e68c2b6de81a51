"""Test bench of the state table kit: tables of the backend under test next to reference dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from penstock.state.table import StateBackend, StoredRows
from penstock.testing.table_kit_data import TIMES, Shape, micros
from penstock.testing.table_kit_driver import Difference, Key, Rows, TableDriver

MakeBackend: TypeAlias = Callable[[], StateBackend]


@dataclass
class Bench:
    """Test bench of a check. ``restore_into``: makes the backend into which captured content is loaded."""

    make_backend: MakeBackend
    restore_into: MakeBackend
    _opened: dict[MakeBackend, StateBackend] = field(default_factory=dict)
    _tables: int = 0

    def driver(self, shape: Shape) -> TableDriver:
        return self._driver(self.make_backend, shape)

    def loaded(self, pieces: Sequence[StoredRows], shape: Shape, rows: Rows, raw: dict[Key, Any]) -> TableDriver:
        """A table of the other backend that these pieces were loaded into."""
        driver = self._driver(self.restore_into, shape)
        driver.load(pieces, rows, raw)
        return driver

    def _driver(self, make: MakeBackend, shape: Shape) -> TableDriver:
        """A check's tables are all of one backend, which keeps them apart."""
        if make not in self._opened:
            self._opened[make] = make()
        self._tables += 1
        return TableDriver(self._opened[make].create_table(f"table {self._tables}", shape.spec), shape)

    def close(self) -> None:
        for backend in self._opened.values():
            backend.close()
        self._opened.clear()


@dataclass(frozen=True)
class Check:
    """``meaning``: the sentence of the contract that it holds a backend to."""

    name: str
    meaning: str
    run: Callable[[Bench], None]


CHECKS: list[Check] = []


def check(meaning: str) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Make a function one of the ``CHECKS``, under its name."""

    def register(run: Callable[[Bench], None]) -> Callable[[Bench], None]:
        CHECKS.append(Check(run.__name__.replace("_", " "), meaning, run))
        return run

    return register


@contextmanager
def about(what: str) -> Iterator[None]:
    """Says in which of a check's cases it was."""
    try:
        yield
    except Difference as difference:
        raise Difference(f"{what}: {difference}") from difference
    except Exception as error:
        error.add_note(f"state table kit: {what}")
        raise


def some_keys(shape: Shape, random: Random, most: int = 6) -> list[tuple[Any, ...]]:
    return [shape.key(random) for _ in range(random.randint(1, most))]


def edit(driver: TableDriver, keys: list[tuple[Any, ...]], random: Random) -> None:
    """All value columns at times, some at others."""
    every = range(len(driver.shape.values))
    columns = [column for column in every if random.random() < 0.8]
    driver.edit(keys, [driver.shape.value(random) for _ in keys], columns)


def go_on(driver: TableDriver, random: Random) -> None:
    """A loaded table is like any other."""
    shape = driver.shape
    driver.scan(3)
    driver.find(some_keys(shape, random))
    edit(driver, some_keys(shape, random), random)
    if driver.rows:
        driver.remove(driver.present(random, 1))
    if shape.marks_changes:
        list(driver.take_marked(2))
    moment = driver.capture()
    driver.check_base(moment)
    driver.check_delta(None, moment)
    if shape.event_time is not None:
        list(driver.take_due(micros(TIMES.values[6]), 3))
        list(driver.take_due(2**63 - 1, 3))
    driver.scan(3)
