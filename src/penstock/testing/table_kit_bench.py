"""Test bench of the state table kit: creates tables of the backend under test, each with a reference dict."""

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
    """Test bench of one check. ``restore_into``: creates the backend into which captured content is loaded."""

    make_backend: MakeBackend
    restore_into: MakeBackend
    _opened: dict[MakeBackend, StateBackend] = field(default_factory=dict)
    _tables: int = 0

    def driver(self, shape: Shape) -> TableDriver:
        return self._driver(self.make_backend, shape)

    def loaded(self, pieces: Sequence[StoredRows], shape: Shape, rows: Rows, raw: dict[Key, Any]) -> TableDriver:
        """Create a table in the backend of ``restore_into``, and load these pieces into it."""
        driver = self._driver(self.restore_into, shape)
        driver.load(pieces, rows, raw)
        return driver

    def _driver(self, make: MakeBackend, shape: Shape) -> TableDriver:
        """Create a table with a new name. All tables of one check and one factory share a backend."""
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
    """Check of the kit. ``meaning``: the sentence of the contract that it checks."""

    name: str
    meaning: str
    run: Callable[[Bench], None]


CHECKS: list[Check] = []


def check(meaning: str) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Register a function in ``CHECKS``, under its name."""

    def register(run: Callable[[Bench], None]) -> Callable[[Bench], None]:
        CHECKS.append(Check(run.__name__.replace("_", " "), meaning, run))
        return run

    return register


@contextmanager
def about(what: str) -> Iterator[None]:
    """Add the name of the current case to errors that the block raises."""
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
    """Write random values for these keys, to a random selection of the value columns."""
    every = range(len(driver.shape.values))
    columns = [column for column in every if random.random() < 0.8]
    driver.edit(keys, [driver.shape.value(random) for _ in keys], columns)


def go_on(driver: TableDriver, random: Random) -> None:
    """Use a loaded or restored table in many ways: it must behave like any other table."""
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
