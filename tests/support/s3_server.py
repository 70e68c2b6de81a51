"""An S3 server on loopback for tests: moto in a process of its own, ended with the fixture that holds it."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from penstock.snapshots.store.store_access import StoreAccess

PROGRAM = Path(__file__).with_name("s3_program.py")
START_TIMEOUT_S = 60
PAGE = 100
"""Objects in one answer of a listing: few, so that there are several."""
KEY, SECRET = "an-access-key", "a-secret-that-nobody-may-see"


@dataclass(frozen=True)
class S3Server:
    """``bucket``: exists already."""

    port: int
    bucket: str = "penstock-tests"

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def access(self, endpoint: str | None = None) -> StoreAccess:
        """``endpoint``: of a proxy in front of it."""
        return StoreAccess(endpoint or self.endpoint, "us-east-1", KEY, SECRET, allow_http=True)

    def location(self) -> str:
        """A new one."""
        return f"s3://{self.bucket}/{secrets.token_hex(8)}"

    def environment(self, endpoint: str | None = None) -> dict[str, str]:
        """Return the environment variables with which a process reaches the server without options."""
        return {
            "AWS_ENDPOINT_URL": endpoint or self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }


@contextmanager
def moto(page: int = PAGE) -> Iterator[S3Server]:
    """Ends its process in any case. ``page``: objects in one answer of a listing."""
    assert find_spec("moto") is not None, "moto is not installed: pip install 'moto[s3]' flask-cors"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": str(page)},
    )
    try:
        _await(port, process)
        server = S3Server(port)
        _create_bucket(server)
        yield server
    finally:
        process.kill()
        process.wait()


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"moto_server did not start (exit code {process.poll()})")


def client(server: S3Server):  # type: ignore[no-untyped-def]  # boto3 has no types
    """Return a plain client of the server."""
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name="us-east-1",
    )


def _create_bucket(server: S3Server) -> None:
    client(server).create_bucket(Bucket=server.bucket)
