"""Runtime file of a REST service: its address and its generated token, for programs of the same user.

A service that generates its own token writes ``rest-<pid>-<port>.json`` into the user's runtime directory and removes
it when it ends. Only the user can read the file. The next service removes files of killed processes. ``penstock query``
reads the file, so that users need not copy a token on the machine of the driver.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path

import msgspec

from penstock.decoding import decode_json
from penstock.errors import ConfigError, ServiceUnreachable

DIRECTORY_VARIABLE = "PENSTOCK_RUNTIME_DIR"
_NAME = re.compile(r"rest-(\d{1,10})-\d{1,5}\.json")
_MAX_BYTES = 16 << 10


class RuntimeFile(msgspec.Struct, frozen=True):
    """Address and token of one service."""

    url: str
    token: str

    def __repr__(self) -> str:
        return f"RuntimeFile({self.url!r})"


def runtime_directory() -> Path:
    """Return the directory of these files.

    It is ``$PENSTOCK_RUNTIME_DIR``, else ``penstock`` in ``$XDG_RUNTIME_DIR``, else
    ``~/.local/share/penstock/runtime``.
    """
    named, session = os.environ.get(DIRECTORY_VARIABLE), os.environ.get("XDG_RUNTIME_DIR")
    if named:
        return Path(named)
    return Path(session) / "penstock" if session else Path.home() / ".local" / "share" / "penstock" / "runtime"


def write_runtime_file(url: str, token: str, port: int) -> Path:
    """Write the file of a service of this process. Remove the files of ended processes.

    Raises:
        OSError: the directory cannot be created or written, or other users have access to it.
    """
    directory = runtime_directory()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _is_private(directory.stat()):
        raise PermissionError(f"{directory} belongs to another user, or other users have access to it")
    for path, pid in _files(directory):
        if not _is_alive(pid):
            path.unlink(missing_ok=True)
    path = directory / f"rest-{os.getpid()}-{port}.json"
    # mkstemp creates a file that only its owner can read. The rename is atomic, so readers see the complete file.
    descriptor, temporary = tempfile.mkstemp(dir=directory)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(RuntimeFile(url, token)))
    os.replace(temporary, path)
    return path


def running_services() -> list[RuntimeFile]:
    """Return the services of this user on this machine that generated their own tokens.

    Files that another user can write or read are ignored.
    """
    directory = runtime_directory()
    try:
        if not _is_private(directory.stat()):
            return []
        found = [path for path, pid in _files(directory) if _is_alive(pid)]
        return [service for path in found if (service := _read(path)) is not None]
    except OSError:  # no service has written a file here yet, or one removes its file now
        return []


def only_service() -> RuntimeFile:
    """Return the only running service.

    Raises:
        ServiceUnreachable: no service runs. ConfigError: several run.
    """
    services = running_services()
    if len(services) == 1:
        return services[0]
    if services:
        urls = ", ".join(sorted(service.url for service in services))
        raise ConfigError(f"several REST services run here: choose one with --url or PENSTOCK_URL: {urls}")
    raise ServiceUnreachable(
        "no REST service of this user runs on this machine: give the address of another one with --url "
        "http://HOST:PORT or PENSTOCK_URL; the program of the query has it as penstock.serve().url"
    )


def _files(directory: Path) -> list[tuple[Path, int]]:
    matches = ((path, _NAME.fullmatch(path.name)) for path in sorted(directory.iterdir()))
    return [(path, int(match[1])) for path, match in matches if match is not None]


def _read(path: Path) -> RuntimeFile | None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        if not _is_private(os.fstat(descriptor)):
            return None
        try:
            return decode_json(file.read(_MAX_BYTES), RuntimeFile)
        except (msgspec.DecodeError, RecursionError):
            return None


def _is_private(status: os.stat_result) -> bool:
    return status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077


def _is_alive(pid: int) -> bool:
    """Return True if this user has a process with this id. Another user's process may have reused the id."""
    try:
        os.kill(pid, 0)
    except (OSError, OverflowError):
        return False
    return True
