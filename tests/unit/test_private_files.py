"""Access to secrets: key files that other users can read are refused, and new folders of state have mode 0700."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.connectors.kafka.client import client_config
from penstock.errors import ConfigError
from penstock.private_files import check_private
from penstock.rest.encryption import server_context
from penstock.snapshots.location import open_location
from penstock.snapshots.portable.files import new_directory
from penstock.snapshots.store.store import LocalStore


@pytest.fixture(autouse=True)
def generous() -> Iterator[None]:
    """Set a umask that lets all users read new files."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_text("-----BEGIN PRIVATE KEY-----")
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("bits", [0o644, 0o640, 0o604, 0o602, 0o620])
def test_a_key_that_others_can_read_is_refused(key: Path, bits: int) -> None:
    key.chmod(bits)
    with pytest.raises(ConfigError, match=rf"the key {key} .* mode {bits:04o}: others can read it; chmod 600 {key}"):
        check_private("the key", key)
    key.chmod(0o600)
    check_private("the key", key)


def test_the_group_may_read_what_another_owner_has_mounted(key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: key.stat().st_uid + 1)
    key.chmod(0o440)
    check_private("the key", key)
    key.chmod(0o444)
    with pytest.raises(ConfigError, match="0444"):
        check_private("the key", key)


def test_the_key_of_the_service_is_for_its_owner(key: Path, tmp_path: Path) -> None:
    certificate = tmp_path / "certificate.pem"
    certificate.write_text("-----BEGIN CERTIFICATE-----")
    with pytest.raises(ConfigError, match=r"rest\.tls\.key .* chmod 600"):
        server_context(str(certificate), str(key))


@pytest.mark.parametrize(
    "options",
    [
        {"kafka.ssl.key.location": "{key}"},
        {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": "{key}"},
        {"kafka.sasl.kerberos.keytab": "{key}"},
    ],
)
def test_a_key_of_a_kafka_client_is_for_its_owner(key: Path, options: dict[str, str]) -> None:
    texts = {name: text.format(key=key) for name, text in options.items()}
    config = client_config({"kafka.bootstrap.servers": "localhost:1", **texts})
    with pytest.raises(ConfigError, match=r"option kafka\.s.* chmod 600"):
        config.consumer("g", print)


def test_a_location_is_made_for_its_owner_and_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    store = open_location(str(tmp_path / "new" / "location"))
    assert mode(tmp_path / "new" / "location") == 0o700
    store.create_if_absent("log/1", b"x")
    (tmp_path / "theirs").mkdir()
    open_location(str(tmp_path / "theirs"))
    assert mode(tmp_path / "theirs") == 0o777


def test_a_location_may_be_shared(tmp_path: Path) -> None:
    os.umask(0o007)
    store = open_location(str(tmp_path / "location"), owner_only=False)
    store.create_if_absent("log/1", b"x")
    assert mode(tmp_path / "location") == mode(tmp_path / "location" / "log") == 0o770
    assert mode(tmp_path / "location" / "log" / "1") == 0o660


def test_an_export_is_made_for_its_owner(tmp_path: Path) -> None:
    with new_directory(tmp_path / "export", "the export") as folder:
        LocalStore(folder).create_if_absent("a", b"x")
    assert mode(tmp_path / "export") == 0o700
