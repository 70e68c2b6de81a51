"""Conformance kit for authors of state backends: compares the tables of a ``StateBackend`` with dicts.

    check_backend(lambda: MyBackend(...))

runs all ``CHECKS``. To get one test per check, parametrize a test with ``CHECKS`` and call ``run_check``. Runs are
seeded, so failures are reproducible.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.state.table import RestorePoint
from penstock.testing.failure import SimulationFailure
from penstock.testing.table_kit_bench import CHECKS, Bench, Check, MakeBackend, about, check, edit, go_on, some_keys
from penstock.testing.table_kit_data import (
    COUNT,
    KEY_KINDS,
    LARGE,
    PLAIN,
    SHAPES,
    TIMES,
    VALUE_KINDS,
    Kind,
    Shape,
    micros,
)
from penstock.testing.table_kit_driver import LAST, Difference, Moment, TableDriver, expect

STEPS = 40
SEEDS = 1
"""Number of runs per shape, each with ``STEPS`` calls. With about a dozen keys they cover most pairs of calls."""

_LARGE_ROWS = 40_000


def check_backend(make_backend: MakeBackend, restore_into: MakeBackend | None = None) -> None:
    """Run all checks.

    Args:
        make_backend: returns a new backend at each call.
        restore_into: returns a new backend into which captured content is loaded. By default ``make_backend``.

    Raises:
        SimulationFailure: a check failed. The text has its name, its meaning and the difference.
        Exception: the backend raised it.
    """
    for one in CHECKS:
        run_check(one, make_backend, restore_into)


def run_check(one: Check, make_backend: MakeBackend, restore_into: MakeBackend | None = None) -> None:
    """Run one of ``CHECKS``. Other arguments and errors: see ``check_backend``."""
    bench = Bench(make_backend, restore_into or make_backend)
    try:
        one.run(bench)
    except Difference as difference:
        raise SimulationFailure(f"{one.meaning}\n{difference}", one.name) from difference
    finally:
        bench.close()


# -- one table, call by call ------------------------------------------------------------------------------------------


@check("an empty table has nothing to find, take, scan, capture or remove")
def an_empty_table(bench: Bench) -> None:
    for shape in SHAPES:
        with about(shape.name):
            driver = bench.driver(shape)
            driver.find([shape.key(Random(1))])
            driver.remove([shape.key(Random(1))])
            driver.scan(10)
            driver.clear_marks()
            if shape.event_time is not None:
                expect(list(driver.take_due(2**63 - 1, 10)), [], "take_due")
            moment = driver.capture()
            expect(driver.check_base(moment), [], "base")
            driver.check_delta(None, moment)
            driver.find([])
            driver.edit([], [], [])
            driver.scan(10)


@check("keys are equal in Spark's sense, different ones have rows of their own, and they come back normalised")
def keys_of_every_type(bench: Bench) -> None:
    for name, kind in KEY_KINDS.items():
        with about(f"key {name}"):
            shape = Shape(name, (kind,), (COUNT,))
            driver = bench.driver(shape)
            keys = [(None,), *((value,) for value in kind.values)]
            driver.edit(keys, [(number,) for number in range(len(keys))], [0])
            driver.find(keys)
            driver.scan(2)
            driver.check_base(driver.capture())
            driver.remove(keys[: len(keys) // 2])
            driver.find(keys)
            driver.scan(100)


@check("values of every type are what was written, found, scanned, captured and loaded")
def values_of_every_type(bench: Bench) -> None:
    for name, kind in VALUE_KINDS.items():
        with about(f"value {name}"):
            values = [(None,), *((value,) for value in kind.values)]
            numbers = Kind(pa.int64(), tuple(range(len(values))))
            shape = Shape(name, (numbers,), (kind,))
            driver = bench.driver(shape)
            keys = [(number,) for number in range(len(values))]
            driver.edit(keys, values, [0])
            driver.find(keys)
            driver.scan(2)
            moment = driver.capture()
            driver.edit(keys, values[::-1], [0])
            driver.find(keys)
            pieces = driver.check_base(moment)
            loaded = bench.loaded(pieces, shape, moment.rows, driver.known_keys())
            loaded.scan(100)
            loaded.find(keys)
            driver.check_base(driver.capture())


@check("the same key several times in a batch is one row, and of a batch's rows each key's is the same")
def repeated_keys(bench: Bench) -> None:
    driver = bench.driver(PLAIN)
    keys: list[tuple[Any, ...]] = [(1, "a"), (2, "a"), (1, "a"), (1, None), (2, "a"), (1, "a")]
    values: list[tuple[Any, ...]] = [(number, str(number)) for number in range(len(keys))]
    for columns in ([0, 1], [0], []):
        driver.edit(keys, values, columns)
        driver.scan(10)
        driver.find([*keys, (9, "not there"), (9, "not there")])
    driver.remove([*keys, (9, "not there")])
    driver.scan(10)
    driver.edit(keys, values, [1])
    driver.scan(10)


@check("an edit that ends by an exception leaves the rows of other keys as they were, and the table of use")
def an_edit_that_fails(bench: Bench) -> None:
    driver = bench.driver(PLAIN)
    driver.edit([(1, "a"), (2, "b")], [(1, "x"), (2, "y")], [0, 1])
    others = [pa.array([3, 4]), pa.array(["a", "b"])]
    with suppress(ZeroDivisionError), driver.table.edit(others, 2) as edited:
        edited.values[0].set(edited.rows, pa.array([1, 1 // len(edited.keys)]))
    driver.table.remove(others, 2)
    driver.scan(10)
    driver.edit([(1, "a"), (3, "a")], [(5, "x"), (6, "y")], [0, 1])
    driver.check_base(driver.capture())


@check("rows that are due are gone when they are yielded, come by their time, in steps, and nulls are never due")
def taking_what_is_due(bench: Bench) -> None:
    for shape in [shape for shape in SHAPES if shape.event_time is not None]:
        for seed in range(SEEDS):
            with about(f"{shape.name}, seed {seed}"):
                random = Random(seed)
                driver = bench.driver(shape)
                for _ in range(8):
                    edit(driver, some_keys(shape, random, 20), random)
                    until_us = micros(random.choice(TIMES.values)) + random.choice((-1, 0, 4_999_999))
                    moments = [driver.capture()]
                    for _ in driver.take_due(until_us, random.choice((1, 2, 100))):
                        moments.append(driver.capture())
                        driver.scan(100)
                    for moment in moments:
                        driver.check_base(moment)
                        moment.capture.release()
                    driver.find(some_keys(shape, random))
                expect(list(driver.take_due(-(2**63), 10)), [], "take_due long before the first")
                driver.forget_due(-(2**63), 10)
                driver.forget_due(2**63 - 1, 7)
                driver.scan(10)


@check("edit marks, taking and clearing clear, and what was cleared is in the next delta")
def marks_come_and_go(bench: Bench) -> None:
    for shape in [shape for shape in SHAPES if shape.marks_changes]:
        with about(shape.name):
            random = Random(1)
            driver = bench.driver(shape)
            before: Moment | None = None
            for number in range(12):
                if number % 3:
                    edit(driver, some_keys(shape, random), random)
                if number % 4 == 1:
                    list(driver.take_marked(random.choice((1, 100))))
                elif number % 4 == 3:
                    driver.clear_marks()
                driver.scan(100)
                moment = driver.capture()
                driver.check_base(moment)
                if before is not None:
                    driver.check_delta(before, moment)
                before = moment


@check("a scan of some key groups gives the rows of these")
def scanning_some_key_groups(bench: Bench) -> None:
    for shape in SHAPES[:7]:
        with about(shape.name):
            random = Random(1)
            driver = bench.driver(shape)
            edit(driver, some_keys(shape, random, 60), random)
            for first, last in ((0, LAST), (0, 0), (3, 9), (LAST, LAST)):
                driver.scan(random.choice((1, 3, 100)), first, last)


# -- captures ---------------------------------------------------------------------------------------------------------


@check("captures show their own moment, whole or in part, while the table goes on, and in whatever order they go")
def captures_keep_their_moment(bench: Bench) -> None:
    for shape in SHAPES:
        with about(shape.name):
            random = Random(1)
            driver = bench.driver(shape)
            moments: list[Moment] = []
            for _ in range(12):
                edit(driver, some_keys(shape, random), random)
                if driver.rows:
                    driver.remove(driver.present(random, 2))
                moments.append(driver.capture())
                if len(moments) > 3:
                    moments.pop(random.randrange(len(moments))).capture.release()
                for moment in moments:
                    first = random.randint(0, LAST)
                    driver.check_base(moment)
                    driver.check_base(moment, first, random.randint(first, LAST))
                expect([m.capture.serial for m in moments], sorted({m.capture.serial for m in moments}), "serials rise")


@check("a delta since any remembered capture leads from its base to the later one's, key groups alone as well")
def deltas_lead_from_base_to_base(bench: Bench) -> None:
    for shape in SHAPES:
        with about(shape.name):
            random = Random(2)
            driver = bench.driver(shape)
            moments: list[Moment] = []
            for _ in range(8):
                for _ in range(random.randint(0, 3)):
                    edit(driver, some_keys(shape, random), random)
                    if driver.rows and random.random() < 0.5:
                        driver.remove(driver.present(random, 3))
                moments.append(driver.capture())
            for position, later in enumerate(moments):
                for earlier in (None, *moments[:position]):
                    first = random.randint(0, LAST)
                    driver.check_delta(earlier, later)
                    driver.check_delta(earlier, later, first, random.randint(first, LAST))


@check("a few changes to many rows are told as a delta, and forgetting older captures leaves newer deltas whole")
def small_deltas_are_told(bench: Bench) -> None:
    driver = bench.driver(LARGE)
    keys = [(number, f"key {number}") for number in range(2000)]
    driver.edit(keys, [(0,)] * len(keys), [0])
    start = driver.capture()
    driver.edit(keys[:10], [(1,)] * 10, [0])
    driver.remove(keys[10:15])
    middle = driver.capture()
    driver.edit(keys[5:12], [(2,)] * 7, [0])
    end = driver.capture()
    for since, until, most in ((start, middle, 15), (middle, end, 7), (start, end, 17)):
        pieces = driver.check_delta(since, until)
        expect(pieces is not None, True, f"delta since {since.capture.serial} is known")
        expect(sum(piece.batch.num_rows for piece in pieces or ()) <= most, True, f"at most {most} rows are in it")
    for moment in (start, middle):
        moment.capture.release()
    middle.capture.forget_before()
    driver.check_delta(start, end)
    driver.edit(keys[:2], [(3,)] * 2, [0])
    last = driver.capture()
    expect(driver.check_delta(middle, last) is not None, True, "a delta since the one that was not forgotten is known")
    expect(driver.check_delta(end, last) is not None, True, "a delta since a later one is known")
    driver.check_base(last)


@check("what was captured is read on another thread while the table is written to, and shows its moment")
def captures_are_read_on_another_thread(bench: Bench) -> None:
    with ThreadPoolExecutor(1) as other:
        random = Random(3)
        driver = bench.driver(LARGE)
        keys = [(number, f"key {number}") for number in range(3000)]
        driver.edit(keys, [(0,)] * len(keys), [0])
        before = driver.capture()
        for number in range(12):
            moment = driver.capture()
            base, delta = (other.submit(run) for run in _readers(driver, before, moment))
            while not delta.done():
                driver.edit(random.sample(keys, 50), [(number,)] * 50, [0])
                driver.remove(random.sample(keys, 5))
            base.result()
            delta.result()
            other.submit(before.capture.release).result()
            before = moment
        driver.scan(1000)


def _readers(driver: TableDriver, before: Moment, moment: Moment) -> tuple[Callable[[], object], ...]:
    return (lambda: driver.check_base(moment), lambda: driver.check_delta(before, moment))


@check("closing a table gives up its captures: reading one raises RuntimeError, and closing again does nothing")
def closing_with_captures(bench: Bench) -> None:
    driver = bench.driver(PLAIN)
    random = Random(1)
    edit(driver, some_keys(PLAIN, random, 50), random)
    capture, begun = driver.capture().capture, driver.capture().capture
    next(begun.base(0, LAST))
    driver.table.close()
    for read in (partial(capture.base, 0, LAST), partial(capture.delta, 0, 0, LAST)):
        try:
            list(read())
        except RuntimeError:
            continue
        raise Difference("a capture of a closed table could be read")
    capture.release()
    driver.table.close()


# -- loading ----------------------------------------------------------------------------------------------------------


@check("a base and the deltas after it, loaded, make the table as it was at the last of them, ready to go on")
def loading_bases_and_deltas(bench: Bench) -> None:
    for shape in SHAPES:
        with about(shape.name):
            random = Random(4)
            driver = bench.driver(shape)
            edit(driver, some_keys(shape, random, 30), random)
            moment = driver.capture()
            pieces = driver.check_base(moment)
            for _ in range(3):
                edit(driver, some_keys(shape, random), random)
                driver.remove(driver.present(random, 2))
                if shape.marks_changes:
                    list(driver.take_marked(3))
                before, moment = moment, driver.capture()
                delta = driver.check_delta(before, moment)
                pieces = driver.check_base(moment) if delta is None else [*pieces, *delta]
            go_on(bench.loaded(pieces, shape, moment.rows, driver.known_keys()), random)


@check("bases of disjoint key groups, from several tables, are loaded one after the other")
def loading_several_bases(bench: Bench) -> None:
    for shape in SHAPES[:7]:
        with about(shape.name):
            random = Random(5)
            driver = bench.driver(shape)
            edit(driver, some_keys(shape, random, 60), random)
            moment = driver.capture()
            cut = LAST // 2
            pieces = [*driver.check_base(moment, cut + 1, LAST), *driver.check_base(moment, 0, cut)]
            go_on(bench.loaded(pieces, shape, moment.rows, driver.known_keys()), random)


# -- restore points ---------------------------------------------------------------------------------------------------


@check("a table that can go back to a capture is what it was then, whatever came after, and begins there anew")
def going_back(bench: Bench) -> None:
    for shape in SHAPES:
        for seed in range(SEEDS):
            with about(f"{shape.name}, seed {seed}"):
                random = Random(seed)
                driver = bench.driver(shape)
                edit(driver, some_keys(shape, random, 30), random)
                for _ in range(4):
                    if not _went_back(driver, random):
                        break
                    go_on(driver, random)


def _went_back(driver: TableDriver, random: Random) -> bool:
    """Restore one of several captured moments. Return False if the backend keeps none."""
    kept: list[tuple[Moment, RestorePoint]] = []
    for _ in range(random.randint(1, 4)):
        moment = driver.capture()
        _change_something(driver, random)
        driver.check_base(moment)
        point = moment.capture.keep()
        if point is None:
            return False
        kept.append((moment, point))
        for _ in range(random.randint(0, 3)):
            _change_something(driver, random)
    moment, chosen = random.choice(kept)
    for _, point in kept:
        if point is not chosen:
            point.release()
    driver.table.close()
    driver.restore(chosen, moment)
    return True


def _change_something(driver: TableDriver, random: Random) -> None:
    shape = driver.shape
    edit(driver, some_keys(shape, random), random)
    driver.remove(some_keys(shape, random) + driver.present(random, 3))
    if shape.marks_changes and random.random() < 0.3:
        list(driver.take_marked(3))
    if shape.event_time is not None and random.random() < 0.3:
        list(driver.take_due(micros(random.choice(TIMES.values)), 3))
    if random.random() < 0.5:
        edit(driver, some_keys(shape, random, 12), random)


# -- everything -------------------------------------------------------------------------------------------------------


@check("after any sequence of calls the table is what the dict is")
def any_sequence_of_calls(bench: Bench) -> None:
    for shape in SHAPES:
        for seed in range(SEEDS):
            with about(f"{shape.name}, seed {seed}"):
                _AnySequence(bench, shape, Random(seed)).run()


class _AnySequence:
    """Random sequence of calls, with up to three unreleased captures."""

    def __init__(self, bench: Bench, shape: Shape, random: Random) -> None:
        self._bench = bench
        self._shape = shape
        self._random = random
        self._driver = bench.driver(shape)
        self._moments: list[Moment] = []

    def run(self) -> None:
        calls: list[Callable[[], None]] = [self._edit] * 6 + [self._remove, self._find, self._scan, self._capture]
        calls += [self._read, self._release, self._load]
        calls += [self._take_marked, self._clear_marks] if self._shape.marks_changes else []
        calls += [] if self._shape.marks_changes else [self._add] * 3
        calls += [self._take_due, self._forget_due] if self._shape.event_time is not None else []
        for _ in range(STEPS):
            self._random.choice(calls)()
            expect(len(self._driver.table), len(self._driver.rows), "len")
        self._read()
        self._scan()
        self._driver.table.close()

    def _edit(self) -> None:
        edit(self._driver, some_keys(self._shape, self._random), self._random)

    def _add(self) -> None:
        keys = some_keys(self._shape, self._random)
        self._driver.add(keys, [self._shape.value(self._random) for _ in keys])

    def _remove(self) -> None:
        self._driver.remove(some_keys(self._shape, self._random) + self._driver.present(self._random, 2))

    def _find(self) -> None:
        self._driver.find(some_keys(self._shape, self._random))

    def _scan(self) -> None:
        self._driver.scan(self._random.choice((1, 4, 100)))

    def _take_due(self) -> None:
        until_us = micros(self._random.choice(TIMES.values))
        for _ in self._driver.take_due(until_us, self._random.choice((1, 100))):
            if self._random.random() < 0.3:
                self._capture()

    def _forget_due(self) -> None:
        self._driver.forget_due(micros(self._random.choice(TIMES.values)), self._random.choice((1, 100)))

    def _take_marked(self) -> None:
        for _ in self._driver.take_marked(self._random.choice((1, 100))):
            if self._random.random() < 0.3:
                self._capture()

    def _clear_marks(self) -> None:
        self._driver.clear_marks()

    def _capture(self) -> None:
        self._moments.append(self._driver.capture())
        if len(self._moments) > 3:
            self._moments.pop(self._random.randrange(3)).capture.release()

    def _read(self) -> None:
        for position, moment in enumerate(self._moments):
            self._driver.check_base(moment)
            for earlier in (None, *self._moments[:position]):
                self._driver.check_delta(earlier, moment)

    def _release(self) -> None:
        if self._moments:
            moment = self._moments.pop(self._random.randrange(len(self._moments)))
            if self._random.random() < 0.5 and all(m.capture.serial > moment.capture.serial for m in self._moments):
                moment.capture.forget_before()
            moment.capture.release()

    def _load(self) -> None:
        """Continue with a new table, loaded with the content of a capture, in one of five calls."""
        if self._random.random() < 0.8:
            return
        moment = self._driver.capture()
        pieces = self._driver.check_base(moment)
        raw = self._driver.known_keys()
        self._driver.table.close()
        self._driver = self._bench.loaded(pieces, self._shape, moment.rows, raw)
        self._moments.clear()


@check("many rows in one edit are as many rows; they count up, and go")
def many_rows_at_once(bench: Bench) -> None:
    table = bench.driver(LARGE).table
    numbers = np.random.default_rng(1).permutation(_LARGE_ROWS)
    keys = [pa.array(numbers), pa.array([f"key {number}" for number in numbers.tolist()])]
    for _ in range(2):
        with table.edit(keys, _LARGE_ROWS) as edited:
            data, valid = edited.values[0].write()
            data[edited.rows] += 1
            valid[edited.rows] = True
    expect(len(table), _LARGE_ROWS, "len")
    capture = table.capture()
    with table.edit([key.slice(0, 10) for key in keys], 10) as edited:
        edited.values[0].write()[0][edited.rows] = -1
    base = pa.Table.from_batches(capture.base(0, LAST))
    capture.release()
    expect(base.num_rows, _LARGE_ROWS, "rows of the base")
    expect(base.column("v0").unique().to_pylist(), [2], "counts")
    names = [f"key {number}" for number in base.column("k0").to_pylist()]
    expect(names == base.column("k1").to_pylist(), True, "key columns belong together")
    expect(len(base.column("k0").unique()), _LARGE_ROWS, "distinct keys")
    expect(table.remove(keys, _LARGE_ROWS), _LARGE_ROWS, "removed")
    expect((len(table), list(table.scan(1000))), (0, []), "left")
