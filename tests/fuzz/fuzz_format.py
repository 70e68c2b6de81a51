"""Fuzzes the readers of the format with atheris (libFuzzer): ``python -m tests.fuzz.fuzz_format [TARGET...]``.

    --seconds S     for each target (default 60)
    --corpus DIR    where what it finds worth keeping goes (default: a new folder; the committed corpus is only read)

A finding ends the run with exit code 1 and lies in ``artifacts/``: put it into ``tests/fuzz/corpus/TARGET`` under its
digest, with the mending. Each target runs in a process of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ARTIFACTS = Path("artifacts")


def main() -> int:
    chosen = _parser().parse_args()
    if chosen.one:
        return _fuzz(chosen.one, chosen.seconds, Path(chosen.corpus))
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not there (it is for Linux alone): nothing was fuzzed", file=sys.stderr)
        return 1
    from tests.fuzz.targets import TARGETS

    ARTIFACTS.mkdir(exist_ok=True)
    failed = []
    for name in chosen.targets or TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            corpus = Path(chosen.corpus or folder) / name
            corpus.mkdir(parents=True, exist_ok=True)
            program = [sys.executable, "-m", "tests.fuzz.fuzz_format"]
            command = [*program, "--one", name, "--seconds", str(chosen.seconds), "--corpus", corpus]
            print(f"-- {name}", flush=True)
            if subprocess.run(command, check=False).returncode:
                failed.append(name)
    if failed:
        print(f"findings in {', '.join(failed)}: see {ARTIFACTS}/", file=sys.stderr)
    return 1 if failed else 0


def _fuzz(name: str, seconds: int, corpus: Path) -> int:
    """Does not return: libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["penstock.snapshots", "tests.fuzz.targets"]):
        from tests.fuzz.targets import TARGETS, attempt
    options = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        "-rss_limit_mb=3000",
        "-malloc_limit_mb=1500",
        "-timeout=20",
        "-max_len=16384",
        "-print_final_stats=0",
        "-verbosity=0",
        f"-artifact_prefix={ARTIFACTS}/{name}-",
        str(corpus),
        str(HERE / "corpus" / name),
    ]
    atheris.Setup(options, lambda data: attempt(TARGETS[name], data) and None)
    atheris.Fuzz()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Fuzz the readers of the snapshot format.")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", default="")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
