"""Location on an S3-compatible object store: ``s3://bucket/prefix``.

The library is obstore (the Rust crate ``object_store``). It offers the conditional put (``If-None-Match: *``) that the
log needs, and multipart uploads that can be aborted, all without the GIL. docs/object-stores.md lists what the server
must support; ``prepare`` checks it.

Three things differ from a file system:

* A conditional put whose answer is lost may have succeeded. If the library repeated the put, the answer would be that
  the object exists. So only this module repeats it. If an object exists after an attempt without an answer, this
  process may have created it. The outcome is unknown, and an ``OSError`` is raised.
* S3 answers 409 to concurrent conditional puts, and the library reports that as "exists". This module checks whether
  the object exists; if not, no writer has created it yet.
* A data file becomes visible with ``close``. ``create`` checks whether the name is in use, but does not reserve it.
  Names of data files are unique (generation, checkpoint, slot), and a generation has one owner.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.errors import CorruptSnapshot, LocationError
from penstock.redaction import without_secrets
from penstock.snapshots.store.store import MAX_READ_BYTES, DataFile, Store, checked_path
from penstock.snapshots.store.store_access import StoreAccess

if TYPE_CHECKING:
    from obstore.store import S3Store as S3Client

PART_BYTES = 8 << 20
"""Bytes of one part of a multipart upload. An upload has at most 10,000 parts, so a data file may have 80 GB."""
PARTS_AT_ONCE = 3
"""Maximum number of parts of one data file in flight. With the part that is being filled, they take up to 32 MB."""
BUFFER_BYTES = 1 << 20
"""Number of bytes passed to the library at a time."""
READ_BYTES = 16 << 20
"""Maximum size of one request in bytes. A longer range is read by several requests, each with its own timeout."""
CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 60
"""Time limit of a request, from the connection to the last byte of the answer."""
RETRIES = 5
RETRY_FOR_S = 60
"""Time limit for retries: a retry begins at most this long after the first attempt."""
BACKOFF_S, MAX_BACKOFF_S = 0.1, 5.0
CREATE_PAUSES_S = (0.0, 0.1, 0.5, 2.0)
"""Pauses before each attempt of a conditional put."""
CREATE_TIMEOUT_S = 20
LISTING_THRESHOLD = 16
"""Number of files above which their sizes are read from listings of 1,000 files each."""
LISTING_ATTEMPTS = 3
PARALLEL_REQUESTS = 16
"""Maximum number of concurrent requests when many small files are read."""
PROBE_ATTEMPTS = 3
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})</Message>")
_MAX_REASON = 400
_T = TypeVar("_T")


class S3Store(Store):
    """Store on an S3-compatible object store.

    Pickling drops ``access``: the unpickled store uses the environment of its process.

    Args:
        root: ``s3://bucket/prefix`` as ``location_text`` writes it.
        access: endpoint and credentials; None takes them from the environment.

    Raises:
        LocationError: obstore is not installed, or rejects the bucket or endpoint.
    """

    parallel_calls = PARALLEL_REQUESTS

    def __init__(self, root: str, access: StoreAccess | None = None) -> None:
        self.root = root
        self._access = access or StoreAccess()
        self._client = self._connected(RETRIES, REQUEST_TIMEOUT_S)
        self._client_without_retries = self._connected(0, CREATE_TIMEOUT_S)

    def __reduce__(self) -> tuple[type[S3Store], tuple[str]]:
        return S3Store, (self.root,)

    # -- create -------------------------------------------------------------------------------------------------------

    def create_if_absent(self, path: str, data: bytes) -> bool:
        import obstore

        checked_path(path)
        in_doubt: OSError | None = None
        for pause_s in CREATE_PAUSES_S:
            time.sleep(pause_s)
            try:
                with self._translated_errors(path, writes=True):
                    obstore.put(self._client_without_retries, path, bytes(data), mode="create")
                return True
            except FileExistsError:
                if not self.exists(path):
                    continue  # 409: other writers tried at the same moment, or the object was deleted since.
                if in_doubt is None:
                    return False
                break
            except PermissionError:
                raise  # The server refused the request, so nothing was written.
            except OSError as error:
                in_doubt = error
        raise OSError(errno.EIO, f"it is not known whether it was created: {in_doubt or 'conflict'}", self._name(path))

    def create(self, path: str) -> DataFile:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, "exists already", self._name(path))
        return _S3File(self, path)

    def prepare(self, *, owner_only: bool = True) -> None:
        """Create a test object twice, to check that the server refuses the second one."""
        for left in reversed(range(PROBE_ATTEMPTS)):
            try:
                if self._refuses_existing():
                    return
                break
            except PermissionError:
                raise
            except OSError:
                if not left:
                    raise
        raise LocationError(
            f"{self.root}: the server does not refuse to create an object that exists (a conditional put, "
            "If-None-Match: *), so that two drivers could overwrite each other's log; use one that supports "
            "conditional writes (docs/object-stores.md), or a shared folder"
        )

    def _refuses_existing(self) -> bool:
        path = f".probe.{os.urandom(8).hex()}.tmp"
        try:
            self.create_if_absent(path, b"first")
            return not self.create_if_absent(path, b"second") and self.read(path) == b"first"
        finally:
            with contextlib.suppress(OSError):
                self.delete(path)

    # -- read ---------------------------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes:
        import obstore

        with self._translated_errors(checked_path(path)):
            found = obstore.get(self._client, path)
            size = found.meta["size"]
            if size <= MAX_READ_BYTES:
                return bytes(found.bytes())
        raise CorruptSnapshot(f"{path} has {size} bytes; no file of its kind has more than {MAX_READ_BYTES}")

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        checked_path(path)
        if length <= READ_BYTES:
            return self._read_piece(path, offset, length)
        # A forged reference may declare any length, so check the size of the file first.
        end = min(offset + length, self._size_of(path))
        starts = range(offset, end, READ_BYTES)
        return b"".join(self._read_piece(path, start, min(READ_BYTES, end - start)) for start in starts)

    def _read_piece(self, path: str, offset: int, length: int) -> bytes:
        import obstore

        if offset < 0 or length < 0:
            raise ValueError(f"there is no range [{offset}, {offset + length})")
        try:
            if length:
                with self._translated_errors(path):
                    return bytes(obstore.get_range(self._client, path, start=offset, length=length))
        except FileNotFoundError:
            raise
        except OSError:
            if offset < self._size_of(path):
                raise
        else:
            self._size_of(path)
        return b""

    def _size_of(self, path: str) -> int:
        size = self.size(path)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self._name(path))
        return size

    def size(self, path: str) -> int | None:
        import obstore

        try:
            with self._translated_errors(checked_path(path)):
                return int(obstore.head(self._client, path)["size"])
        except FileNotFoundError:
            return None

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        if len(paths) <= LISTING_THRESHOLD:
            return super().sizes(paths)
        found: dict[str, int] = {}
        by_folder: dict[str, set[str]] = defaultdict(set)
        for path in paths:
            by_folder[checked_path(path).rpartition("/")[0].partition("/")[0]].add(path)
        found.update(super().sizes(by_folder.pop("", ())))
        for folder, names in by_folder.items():
            found.update((path, size) for path, size in self._listed(folder) if path in names)
        return found

    def top_names(self) -> list[str]:
        import obstore

        found = self._retried("", lambda: obstore.list_with_delimiter(self._client))
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted({path.strip("/").rpartition("/")[2] for path in paths} - {""})

    def list(self, folder: str, after: str = "") -> list[str]:
        return sorted(path for path, _ in self._listed(folder, after))

    def _listed(self, folder: str, after: str = "") -> Iterator[tuple[str, int]]:
        import obstore

        below = f"{checked_path(folder)}/"
        offset = checked_path(after) if after else None
        found = self._retried(
            folder, lambda: obstore.list(self._client, folder, offset=offset, chunk_size=1000).collect()
        )
        # A key that ends with a slash is an empty "folder" that a console has created.
        return ((one["path"], one["size"]) for one in found if one["path"].startswith(below))

    def _retried(self, path: str, request: Callable[[], _T]) -> _T:
        """Retry a listing. The library retries requests, but not a listing whose answer breaks off."""
        deadline_s = time.monotonic() + RETRY_FOR_S
        for left in reversed(range(LISTING_ATTEMPTS)):
            try:
                with self._translated_errors(path):
                    return request()
            except PermissionError:
                raise
            except OSError:
                if not left or time.monotonic() > deadline_s:
                    raise
        raise AssertionError("unreachable")

    # -- delete -------------------------------------------------------------------------------------------------------

    def delete(self, path: str) -> None:
        import obstore

        with self._translated_errors(checked_path(path), writes=True):
            obstore.delete(self._client, path)

    def delete_all(self, paths: Sequence[str]) -> None:
        import obstore

        checked = [checked_path(path) for path in paths]
        if checked:
            with self._translated_errors(checked[0], writes=True):
                obstore.delete(self._client, checked)  # The library deletes 1,000 objects per request.

    # -- the library --------------------------------------------------------------------------------------------------

    def _connected(self, retries: int, timeout_s: int) -> S3Client:
        try:
            from obstore.exceptions import BaseError
            from obstore.store import S3Store as Client
        except ImportError as error:
            raise LocationError(
                f"checkpointLocation {self.root}: object stores need obstore, here and where Spark's executors run: "
                "pip install 'penstock[s3]'"
            ) from error
        access, bucket_and_prefix = self._access, self.root.removeprefix("s3://")
        bucket, _, prefix = bucket_and_prefix.partition("/")
        config: dict[str, Any] = {"endpoint": access.endpoint, "region": access.region}
        if access.path_style is not None:
            config["virtual_hosted_style_request"] = not access.path_style
        allow_http = access.allow_http
        if allow_http is None:
            allow_http = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")
        try:
            return Client(
                bucket,
                prefix=prefix or None,
                config={name: value for name, value in config.items() if value is not None},  # type: ignore[arg-type]
                client_options={
                    "allow_http": allow_http,
                    "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
                    "timeout": timedelta(seconds=timeout_s),
                },
                retry_config={
                    "max_retries": retries,
                    "retry_timeout": timedelta(seconds=RETRY_FOR_S),
                    "backoff": {
                        "init_backoff": timedelta(seconds=BACKOFF_S),
                        "max_backoff": timedelta(seconds=MAX_BACKOFF_S),
                    },
                },
                credential_provider=None if access.access_key is None else _StaticCredentials(access),
            )
        except (BaseError, ValueError) as error:
            reason = self._reason(error)
            raise LocationError(f"checkpointLocation {self.root} cannot be an S3 location: {reason}") from None

    @contextlib.contextmanager
    def _translated_errors(self, path: str, *, writes: bool = False) -> Iterator[None]:
        """Translate errors of the library into those of ``Store``, without the library's long traceback."""
        from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except AlreadyExistsError as error:
            raise FileExistsError(errno.EEXIST, self._reason(error), self._name(path)) from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, self._reason(error), self._name(path)) from None
        except FileNotFoundError as error:
            if writes:  # The bucket does not exist.
                raise OSError(errno.EIO, self._reason(error), self._name(path)) from None
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self._name(path)) from None
        except (BaseError, OSError) as error:
            raise OSError(errno.EIO, self._reason(error), self._name(path)) from None

    def _name(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _reason(self, error: BaseException) -> str:
        """Return the first line of the library's error and the server's message.

        Other parts of an answer are left out, because they may quote a token.
        """
        text = without_secrets(self._access.without_secrets(str(error)))
        said = [match[1].strip() for match in (_CODE.search(text), _MESSAGE.search(text)) if match]
        first = text.split("\n", 1)[0].split("<", 1)[0].strip(" :")
        return ": ".join([first[:_MAX_REASON], *said])


class _StaticCredentials:
    """Credentials from the options. The environment is ignored: its session token belongs to other keys."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access

    def __call__(self) -> Any:
        access = self._access
        return {
            "access_key_id": access.access_key,
            "secret_access_key": access.secret_key,
            "token": access.session_token,
            "expires_at": None,
        }

    def __repr__(self) -> str:
        return "_StaticCredentials(***)"


class _S3File(DataFile):
    """Data file on an object store: a single put if it is small, otherwise a multipart upload."""

    def __init__(self, store: S3Store, path: str) -> None:
        import obstore

        self._store = store
        self._path = path
        self._buffer = bytearray()
        self._writer: Any = obstore.open_writer(
            store._client, path, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )
        self._durable = False
        self._closing = False

    def write(self, data: bytes) -> None:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), BUFFER_BYTES):
            self._buffer += view[start : start + BUFFER_BYTES]
            if len(self._buffer) >= BUFFER_BYTES:
                self._flush()

    def close(self) -> None:
        if self._buffer:
            self._flush()
        self._closing = True
        with self._store._translated_errors(self._path, writes=True):
            self._writer.close()
        self._durable = True

    def abandon(self) -> None:
        if self._durable:
            return
        with contextlib.suppress(OSError):
            if not self._closing:
                with self._store._translated_errors(self._path, writes=True):
                    self._writer.__exit__(OSError, None, None)
                return
        with contextlib.suppress(OSError):  # The answer to the last request was lost, so the object may exist.
            self._store.delete(self._path)

    def _flush(self) -> None:
        """Pass a copy of the buffer to the library: it reads the data later, when the buffer may have changed."""
        with self._store._translated_errors(self._path, writes=True):
            self._writer.write(bytes(self._buffer))
        self._buffer.clear()
