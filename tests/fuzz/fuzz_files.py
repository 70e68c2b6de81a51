"""Random files, read by the file source and by Spark's batch reader, `make fuzz-files`:
``python -m tests.fuzz.fuzz_files N [--seed S] [--formats json,parquet]``.

JSON, CSV and text files are small files with changed bytes. Parquet and ORC files are valid, have random schemas, and
are read with other schemas that Spark accepts. Format and seed determine a file. A file that is not read as Spark reads
it is a finding: it is printed with its seed, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.fuzz.fuzz_columnar import orc_file, parquet_file, schema_of
from tests.fuzz.fuzz_texts import (
    CSV_OPTIONS,
    DDLS,
    JSON_OPTIONS,
    TEXT_OPTIONS,
    VALUE_OPTIONS,
    csv_text,
    json_lines,
    json_value,
    text,
)
from tests.support.connectors.file_oracle import differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA_SEEDS = 40
"""Number of consecutive files with one schema. One query of Spark reads them."""

Write = Callable[[random.Random, Path], object]


class Format(NamedTuple):
    """Args: ``options``: a seed chooses one of them. ``write``: writes a file of random content."""

    kind: str
    options: list[dict[str, str]]
    write: Write


class Finding(NamedTuple):
    format: str
    seed: int
    ddl: str
    options: Mapping[str, str]
    difference: str
    content: bytes

    def __str__(self) -> str:
        again = f"make fuzz-files N=1 SEED={self.seed} FORMATS={self.format}"
        return f"{again}\n   {dict(self.options)} {self.ddl}\n   {self.content[:600]!r}\n   {self.difference[:3000]}"


def _of_bytes(make: Callable[[random.Random], bytes]) -> Write:
    return lambda chance, path: path.write_bytes(make(chance))


FORMATS = {
    "json": Format("json", JSON_OPTIONS, _of_bytes(json_lines)),
    "json-value": Format("json", VALUE_OPTIONS, _of_bytes(json_value)),
    "csv": Format("csv", CSV_OPTIONS, _of_bytes(csv_text)),
    "text": Format("text", TEXT_OPTIONS, _of_bytes(text)),
    "parquet": Format("parquet", [{}], parquet_file),
    "orc": Format("orc", [{}], orc_file),
}


def fuzz(spark: SparkSession, name: str, seeds: range, folder: Path) -> Iterator[Finding]:
    """Return the findings among the files of these seeds."""
    form = FORMATS[name]
    groups: dict[tuple[str, int], list[int]] = {}
    for seed in seeds:
        ddl = DDLS[name] if name in DDLS else schema_of(form.kind, seed // SCHEMA_SEEDS)
        groups.setdefault((ddl, seed % len(form.options)), []).append(seed)
    for number, ((ddl, choice), members) in enumerate(groups.items()):
        directory = folder / f"{name}-{number}"
        directory.mkdir()
        for seed in members:
            chance = random.Random(f"{name} {seed}")
            path = directory / f"{seed:09}"
            if name in DDLS:
                form.write(chance, path)
            else:
                form.write(chance, path.with_name(f"{path.name}-{seed // SCHEMA_SEEDS}"))
        options = form.options[choice]
        for file, difference in differences(spark, form.kind, directory, ddl, options).items():
            content = (directory / file).read_bytes()
            yield Finding(name, int(file.split("-")[0]), ddl, options, difference, content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", default=",".join(FORMATS))
    asked = parser.parse_args()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").config("spark.log.level", "OFF").getOrCreate()
    found = 0
    try:
        for name in asked.formats.split(","):
            began = time.monotonic()
            seeds = range(asked.seed, asked.seed + asked.count)
            before = found
            with tempfile.TemporaryDirectory(prefix="penstock-fuzz-") as folder:
                for finding in fuzz(spark, name, seeds, Path(folder)):
                    found += 1
                    print(finding, flush=True)
            took = time.monotonic() - began
            told = f"seeds {seeds.start} to {seeds.stop - 1}, {found - before} findings, {took:.0f} s"
            print(f"{name}: {told}", flush=True)
    finally:
        spark.stop()
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
