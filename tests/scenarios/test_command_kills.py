"""A few moments of ``command_kills.py``, and that it would see what is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios import command_kills
from tests.scenarios.command_kills import Place, a_location, check, contents, one_moment
from tests.support.s3_server import S3Server


@pytest.mark.parametrize(("command", "after_s"), [("delete", 0.1), ("copy", 0.2), ("move", 0.3)])
def test_a_command_that_is_killed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, after_s: float
) -> None:
    monkeypatch.setattr(command_kills, "SNAPSHOTS", 8)
    place = Place(tmp_path / "location")
    a_location(place.location)
    one_moment(place, command, after_s, contents(place.location))


@pytest.mark.cluster
def test_a_conversion_into_a_bucket_that_is_killed_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server
) -> None:
    monkeypatch.setattr(command_kills, "SNAPSHOTS", 10)
    for name, value in s3.environment().items():
        monkeypatch.setenv(name, value)
    place = Place(tmp_path / "location", bucket=s3.location())
    a_location(place.location)
    one_moment(place, "convert-bucket", 0.7, contents(place.location))
    assert place.is_done


def test_it_sees_what_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_kills, "SNAPSHOTS", 3)
    place = Place(tmp_path / "location")
    a_location(place.location)
    expected = contents(place.location)
    assert expected[1] != expected[2]
    check(place, expected)
    with pytest.raises(AssertionError, match="restores something else"):
        check(place, expected | {2: expected[1]})
    next((place.location / "data").glob("*-2-0-state.arrows")).unlink()
    with pytest.raises(AssertionError, match=r"location: \[Damage"):
        check(place, expected)
