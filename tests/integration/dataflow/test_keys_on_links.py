"""Keys to an object store are not sent to other machines without encryption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.config import Options
from penstock.coordinator import query_execution as execution_module
from penstock.coordinator.launching import ControlAddress
from penstock.coordinator.query_execution import QueryExecution
from penstock.errors import ConfigError
from penstock.snapshots.store.store_access import StoreAccess
from tests.support.dataflow.thread_launcher import ThreadLauncher
from tests.support.dataflow.tiny import Numbers, tiny_graph

KEYS = StoreAccess("http://127.0.0.1:1", "us-east-1", "key", "a-secret", allow_http=True)


class Elsewhere(ThreadLauncher):
    """Launcher with this address of the driver. It starts no slot."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host

    def control_address(self) -> ControlAddress:
        return ControlAddress(self.host, self.host)


class Claimed(Exception):
    """Raised when the start opens the location."""


def start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str, access: StoreAccess | None, **options: Any
) -> None:
    def claim(*args: object, **options: object) -> None:
        raise Claimed

    monkeypatch.setattr(execution_module, "ClaimedLocation", claim)
    QueryExecution(
        tiny_graph(tmp_path, 1, Numbers(1)),
        name=None,
        run_id="run",
        location="s3://bucket/here",
        options=Options(**options),
        launcher=Elsewhere(host),
        access=access,
    ).start()


@pytest.mark.parametrize("host", ["10.0.0.1", "driver.example.org", "2001:db8::1"])
def test_keys_need_tls_where_slots_may_be_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match=r"s3\.secretKey .*network\.tls=true, or .*AWS_ACCESS_KEY_ID") as refused:
        start(monkeypatch, tmp_path, host, KEYS)
    assert "a-secret" not in str(refused.value)
    for access, options in ((KEYS, {"network_tls": True}), (None, {}), (StoreAccess("http://127.0.0.1:1"), {})):
        with pytest.raises(Claimed):
            start(monkeypatch, tmp_path, host, access, **options)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.1.1", "::1", "localhost"])
def test_loopback_is_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, host: str) -> None:
    with pytest.raises(Claimed):
        start(monkeypatch, tmp_path, host, KEYS)
