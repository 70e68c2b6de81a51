"""Snapshot commands killed at random moments: ``python -m tests.scenarios.command_kills [MOMENTS] [--command NAME]``.

Each moment is a location of its own, with snapshots that share sections, on which the real command runs in a process
group of its own until it is killed with SIGKILL. After it every snapshot that any location lists must verify, and what
it restores must be what it always was; then the same command must complete. A command is one entry of ``COMMANDS``.
``import`` begins with a checkpoint of Spark's, and most of its moments are counted from when Spark is up. Commands that
end with ``-bucket`` have their target in an object store.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.snapshots.catalog import Catalog, plan_restore
from penstock.snapshots.commands.verifying import verify_location
from penstock.snapshots.location import IDENTITY_PATH, read_identity
from penstock.snapshots.log.entries import LogView
from penstock.snapshots.log.snapshot_log import SnapshotLog
from penstock.snapshots.portable.convert import convert_snapshot
from penstock.snapshots.portable.export import export_snapshot
from penstock.snapshots.portable.in_place import EXPORT_MARK_PATH
from penstock.snapshots.restoring.restore import load_restore
from penstock.snapshots.store.stores import store_at
from tests.scenarios import spark_origin
from tests.support import s3_server
from tests.support.snapshots.location_kit import Kept
from tests.support.snapshots.snapshot_kit import graph

SNAPSHOTS = 12
EXPORTED = "chk-9"
KEYS = 480
TIMEOUT_S = 120
RUN = """
import sys
from penstock.cli.main import app
from penstock.snapshots.commands import requests
requests.ask.__kwdefaults__["patience_s"] = 0.0  # nobody is there to answer
sys.stdout.write("ready\\n")
sys.stdout.flush()
app()
"""


@dataclass(frozen=True)
class Place:
    """``location`` holds a query that has ended, with files that a crash left; nothing is at ``target``.

    Attributes:
        job: where the program lies that left a checkpoint of Spark's there instead.
        bucket: a place of an object store, instead of a folder as the target.
    """

    location: Path
    job: Path | None = None
    bucket: str = ""

    @property
    def target(self) -> str:
        return self.bucket or str(self.location.parent / "target")

    @property
    def portable(self) -> Path:
        return self.location.parent / "portable"

    @property
    def is_done(self) -> bool:
        """There is a location at the target."""
        return is_location(self.target)


def is_location(location: str) -> bool:
    """Return True if the commands accept anything at all there."""
    try:
        return store_at(location).exists(IDENTITY_PATH)
    except FileNotFoundError:
        return False


Words = Callable[[Place], list[str]]
"""What stands behind ``penstock snapshot``; asked again for the run that completes."""


def _left(place: Place, names: tuple[str, ...]) -> list[str]:
    """Those that are there still: who deletes says so."""
    ids = {f"chk-{record.checkpoint}" for record in view_at(place.location).snapshots}
    return [name for name in names if name in ids]


def _delete(place: Place) -> list[str]:
    left = _left(place, ("chk-1", "chk-2", "chk-4", "chk-7"))
    return ["delete", str(place.location), *left, "--force"] if left else _gc(place)


def _gc(place: Place) -> list[str]:
    return ["gc", str(place.location), "--force"]


def _export(place: Place) -> list[str]:
    if place.portable.exists():  # it was done
        return ["verify", str(place.location)]
    return ["export", str(place.location), EXPORTED, str(place.portable)]


def _convert(place: Place) -> list[str]:
    if not place.portable.exists():
        export_snapshot(str(place.location), EXPORTED, place.portable)
    return ["verify", place.target] if place.is_done else ["convert", str(place.portable), place.target]


def _export_to_bucket(place: Place) -> list[str]:
    names = store_at(place.target).top_names()
    if "manifest.json" in names and EXPORT_MARK_PATH not in names:
        return ["verify", str(place.location)]
    return ["export", str(place.location), EXPORTED, place.target]


def _import(place: Place) -> list[str]:
    assert place.job is not None
    if place.is_done:
        return ["verify", place.target]
    return ["import", *spark_origin.words(place.job, place.location), place.target]


COMMANDS: dict[str, Words] = {
    "delete": _delete,
    "gc": _gc,
    "copy": lambda place: ["copy", str(place.location), place.target, "--force"],
    "move": lambda place: ["move", str(place.location), place.target, "--force"],
    "fork": lambda place: ["fork", str(place.location), "chk-9", place.target],
    "export": _export,
    "export-bucket": _export_to_bucket,
    "convert": _convert,
    "convert-bucket": _convert,
    "import": _import,
    "import-bucket": _import,
    "rollback": lambda place: ["rollback", str(place.location), "chk-9", "--output", "retract", "--force"],
}

READY = "ready"
SIGNS = dict.fromkeys(("import", "import-bucket"), (READY, *[spark_origin.SPARK_IS_UP] * 4))
"""From which line of the command moments are counted; each of them as often as another."""


def view_at(location: Path | str) -> LogView:
    return SnapshotLog(store_at(str(location))).refresh()


def a_location(location: Path) -> None:
    """The one that all moments begin with."""
    kept = Kept(location)
    for number in range(SNAPSHOTS):
        kept.put({key: key + number for key in range(KEYS) if number == 0 or key % SNAPSHOTS == number})
        kept.snapshot(f"label-{number}" if number % 3 == 0 else "", in_flight=number)
    kept.player.end_generation("the query ends")
    coordinator = kept.player.core.coordinator
    kept.player.effects.close(coordinator.committed_epoch, coordinator.next_checkpoint)
    for garbage in range(40):
        (location / "data" / f"1-{garbage + 1}-9.arrows").write_bytes(bytes(1000 * garbage))
    (location / "snapshots" / "chk-0").mkdir()
    (location / "snapshots" / "chk-0" / "metadata.json").write_text("left by a crash")


Contents = spark_origin.Contents
"""By checkpoint, all rows of all tables as they are restored."""


def contents(location: Path | str) -> Contents:
    """Return the restored contents of every listed snapshot. Raises for a snapshot that is not whole."""
    store = store_at(str(location))
    found: Contents = {}
    for record in view_at(location).snapshots:
        rows: dict[tuple[object, ...], tuple[object, ...]] = {}
        for slot in plan_restore(Catalog(store).read(record), graph(1)):
            for manifest in slot:
                for state in load_restore(manifest, store).operators.values():
                    for stored in (stored for table in state.tables.values() for stored in table):
                        for row in zip(*(column.to_pylist() for column in stored.batch.columns), strict=True):
                            rows[row[:2]] = row[:3]  # a delta has one column more
        found[record.checkpoint] = sorted(rows.values(), key=repr)
    return found


def check(place: Place, expected: Contents) -> None:
    """Check that every listed snapshot is whole, and that the query is at one location."""
    live = []
    for name, location in {"location": str(place.location), "target": place.target}.items():
        if not is_location(location):
            continue
        damage = [one for one in verify_location(location).damage if one.path != "log/"]
        assert not damage, f"{name}: {damage}"
        found = contents(location) if place.job is None else spark_origin.restored(location)
        for checkpoint, rows in found.items():
            assert rows == expected[checkpoint], f"{name}: chk-{checkpoint} restores something else"
        identity = read_identity(store_at(location))
        if not (identity.archive or view_at(location).moved):
            live.append(identity.query_id)
    assert len(live) == len(set(live)), "one query at two places"
    portable: Path | str | None = place.portable if place.portable.exists() else None
    if place.bucket and store_at(place.bucket).exists("manifest.json"):
        portable = place.bucket
    if portable is not None:
        with tempfile.TemporaryDirectory() as back:
            checkpoint = convert_snapshot(portable, Path(back, "back")).checkpoint
            assert contents(Path(back, "back")) == {checkpoint: expected[checkpoint]}, "it is another one"


def started(words: list[str], sign: str = READY) -> subprocess.Popen[str]:
    """The command, at the moment when it says ``sign``: with ``READY`` it begins to work."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, "snapshot", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    if not any(line == f"{sign}\n" for line in process.stdout):
        assert process.stderr is not None
        raise AssertionError(f"{' '.join(words)}: {process.stderr.read()}")
    return process


def complete(words: list[str], sign: str = READY) -> float:
    """Run a command to its end; how long it worked."""
    process = started(words, sign)
    since_s = time.monotonic()
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, f"{' '.join(words)}: {errors}"
    return time.monotonic() - since_s


def kill(words: list[str], after_s: float, sign: str = READY) -> bool:
    """Kill the process; return True if it had not ended yet."""
    process = started(words, sign)
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode in (0, -signal.SIGKILL), errors
    return process.returncode != 0


def campaign(directory: Path, command: str, moments: int, seed: int) -> Counter[str]:
    """Kill one command so many times; what came of it. Raises AssertionError if anything was lost."""
    rng = random.Random(f"{seed} {command}")
    template = a_template(directory, command)
    signs = SIGNS.get(command, (READY,))
    expected: Contents = {}
    longest_s: dict[str, float] = {}
    for sign in dict.fromkeys(signs):
        calm = _copied(template, directory / f"calm-{len(longest_s)}")
        longest_s[sign] = complete(COMMANDS[command](calm), sign)
        expected = contents(template.location) if calm.job is None else spark_origin.restored(calm.target)
        check(calm, expected)
    result: Counter[str] = Counter()
    for moment in range(moments):
        place = _copied(template, directory / f"{command}-{moment}")
        sign = signs[moment % len(signs)]
        result[one_moment(place, command, rng.uniform(0, 1.1 * longest_s[sign]), expected, sign)] += 1
        for now, then in ((str(place.location), str(calm.location)), (place.target, calm.target)):
            assert _ids(now) == _ids(then), f"{command}: {now} has {_ids(now)}, not {_ids(then)}"
        shutil.rmtree(place.location.parent)
    return result


def one_moment(place: Place, command: str, after_s: float, expected: Contents, sign: str = READY) -> str:
    """Kill a command then, look, complete it, and look again."""
    words = COMMANDS[command]
    killed = kill(words(place), after_s, sign)
    check(place, expected)
    complete(words(place))
    check(place, expected)
    return "killed" if killed else "ended before"


def a_template(directory: Path, command: str) -> Place:
    """Location that is copied for each run."""
    place = Place(directory / "template" / "location", bucket="s3" if command.endswith("-bucket") else "")
    if not command.startswith("import"):
        a_location(place.location)
        return place
    job = spark_origin.write_job(place.location.parent)
    subprocess.run([sys.executable, str(job)], check=True, timeout=TIMEOUT_S, stderr=subprocess.DEVNULL)
    return replace(place, job=job)


def _ids(location: str) -> list[tuple[int, bool]]:
    if not is_location(location):
        return []
    return [(record.checkpoint, record.in_lineage) for record in view_at(location).snapshots]


def _copied(template: Place, directory: Path) -> Place:
    bucket = f"s3://{s3_server.S3Server(0).bucket}/{secrets.token_hex(8)}" if template.bucket else ""
    return Place(Path(shutil.copytree(template.location, directory / "location")), template.job, bucket)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("moments", type=int, nargs="?", default=50)
    parser.add_argument("--command", choices=COMMANDS, action="append")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    commands = asked.command or list(COMMANDS)
    with ExitStack() as stack:
        if any(command.endswith("-bucket") for command in commands):
            os.environ.update(stack.enter_context(s3_server.moto()).environment())
        for command in commands:
            with tempfile.TemporaryDirectory(prefix="penstock-kills-") as directory:
                print(command, dict(campaign(Path(directory), command, asked.moments, asked.seed)), flush=True)


if __name__ == "__main__":
    main()
