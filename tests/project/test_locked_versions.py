"""Make targets install locked versions: every version has the hashes of its files, and pip compares them."""

from __future__ import annotations

import re

import pytest

from tests.support.places import ROOT

LOCKED = ["requirements.lock", "benchmarks/peers/flink/requirements.txt"]
_REQUIREMENT = re.compile(r"^[A-Za-z0-9._-]+==[^\s;]+(?: ; [^\\]+)?(?: \\\n    --hash=sha256:[0-9a-f]{64})+$")


@pytest.mark.parametrize("file", LOCKED)
def test_every_version_has_hashes(file: str) -> None:
    lines = [line for line in (ROOT / file).read_text().splitlines(keepends=True) if not line.startswith("#")]
    requirements = re.split(r"\n(?! )", "".join(lines).rstrip("\n"))
    assert requirements
    assert [one for one in requirements if not _REQUIREMENT.match(one)] == []


def test_pip_compares_the_hashes_of_what_it_installs_from_a_file() -> None:
    makefile = (ROOT / "Makefile").read_text()
    installs = [line for line in makefile.splitlines() if re.search(r"pip install .*-r ", line)]
    assert len(installs) == len(LOCKED)
    assert all("--require-hashes" in line for line in installs)
