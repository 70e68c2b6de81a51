"""A location on an S3-compatible object store: ``s3://bucket/prefix``.

The library is obstore (the Rust crate ``object_store``), because it offers the one operation that the log rests on, the
conditional put (``If-None-Match: *``), beside multipart uploads that can be given up, all without the GIL. What the
server must do is in docs/object-stores.md; ``prepare`` sees whether it does.

Three things are not as in a file system:

* A conditional put whose answer is lost may have happened, and the library's own repetition of it would then say that
  the object exists. So it is never repeated by the library, but here, where what is not known stays not known: an
  object that is there after an attempt without an answer may be ours, and the outcome is an ``OSError``.
* S3 answers 409 when conditional puts meet, and the library takes it for "exists". Whether the object does is looked
  up; if not, nobody has it yet.
* A data file is there with ``close`` and not before. ``create`` looks whether the name is taken, but nothing guards it
  from then on: data files have names of their own (Generation, checkpoint, slot), and a Generation has one owner.
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
from penstock.snapshots.store.store import WHOLE_AT_MOST, DataFile, Store, checked_path
from penstock.snapshots.store.store_access import StoreAccess

if TYPE_CHECKING:
    from obstore.store import S3Store as S3Client

PART_BYTES = 8 << 20
"""Of a multipart upload, which has 10,000 parts at most: a data file may have 80 GB."""
PARTS_AT_ONCE = 3
"""In flight for one data file; with the one that is filled, 32 MB."""
GATHERED_BYTES = 1 << 20
"""Handed to the library at once."""
READ_BYTES = 16 << 20
"""Of one request: a longer range is read by several, each with its own time-out."""
CONNECT_TIMEOUT_S = 5
REQUEST_TIMEOUT_S = 60
"""From the connection to the last byte of the answer."""
RETRIES = 5
RETRY_FOR_S = 60
"""No attempt begins later than this after the first."""
BACKOFF_S, MAX_BACKOFF_S = 0.1, 5.0
CREATE_PAUSES_S = (0.0, 0.1, 0.5, 2.0)
"""Before each attempt of a conditional put."""
CREATE_TIMEOUT_S = 20
LISTED_FROM = 16
"""Sizes of more files than this are taken from listings: a listing tells of 1,000 files at once."""
LISTINGS = 3
"""Attempts."""
AT_ONCE = 16
"""Requests that are waited for together where many small files are read."""
PROBES = 3
"""Attempts."""
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,200})</Message>")
_MAX_REASON = 400
_T = TypeVar("_T")


class S3Store(Store):
    """See the module's text. Pickled without ``access``: whoever unpickles it goes by its own environment.

    Args:
        root: ``s3://bucket/prefix`` as ``location_text`` writes it.
        access: as whom; None for what the environment says.

    Raises:
        LocationError: obstore is not installed, or cannot make sense of bucket or endpoint.
    """

    at_once = AT_ONCE

    def __init__(self, root: str, access: StoreAccess | None = None) -> None:
        self.root = root
        self._access = access or StoreAccess()
        self._client = self._connected(RETRIES, REQUEST_TIMEOUT_S)
        self._once = self._connected(0, CREATE_TIMEOUT_S)

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
                with self._named(path, writes=True):
                    obstore.put(self._once, path, bytes(data), mode="create")
                return True
            except FileExistsError:
                if not self.exists(path):
                    continue  # 409: others tried at the same moment, or it is gone by now
                if in_doubt is None:
                    return False
                break
            except PermissionError:
                raise  # refused, so nothing happened
            except OSError as error:
                in_doubt = error
        raise OSError(errno.EIO, f"it is not known whether it was created: {in_doubt or 'conflict'}", self._name(path))

    def create(self, path: str) -> DataFile:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, "exists already", self._name(path))
        return _S3File(self, path)

    def prepare(self, *, owner_only: bool = True) -> None:
        """An object is created twice, for a try: a server that does not refuse the second one is of no use."""
        for left in reversed(range(PROBES)):
            try:
                if self._refuses_what_exists():
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

    def _refuses_what_exists(self) -> bool:
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

        with self._named(checked_path(path)):
            found = obstore.get(self._client, path)
            size = found.meta["size"]
            if size <= WHOLE_AT_MOST:
                return bytes(found.bytes())
        raise CorruptSnapshot(f"{path} has {size} bytes; no file of its kind has more than {WHOLE_AT_MOST}")

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        checked_path(path)
        if length <= READ_BYTES:
            return self._read_piece(path, offset, length)
        # A length that a forged reference declares must not be believed before it is known to be there.
        end = min(offset + length, self._size_of(path))
        starts = range(offset, end, READ_BYTES)
        return b"".join(self._read_piece(path, start, min(READ_BYTES, end - start)) for start in starts)

    def _read_piece(self, path: str, offset: int, length: int) -> bytes:
        import obstore

        if offset < 0 or length < 0:
            raise ValueError(f"there is no range [{offset}, {offset + length})")
        try:
            if length:
                with self._named(path):
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
            with self._named(checked_path(path)):
                return int(obstore.head(self._client, path)["size"])
        except FileNotFoundError:
            return None

    def sizes(self, paths: Collection[str]) -> dict[str, int]:
        if len(paths) <= LISTED_FROM:
            return super().sizes(paths)
        found: dict[str, int] = {}
        by_folder: dict[str, set[str]] = defaultdict(set)
        for path in paths:
            by_folder[checked_path(path).rpartition("/")[0].partition("/")[0]].add(path)
        found.update(super().sizes(by_folder.pop("", ())))
        for folder, wanted in by_folder.items():
            found.update((path, size) for path, size in self._listed(folder) if path in wanted)
        return found

    def names(self) -> list[str]:
        import obstore

        found = self._repeated("", lambda: obstore.list_with_delimiter(self._client))
        paths = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        return sorted({path.strip("/").rpartition("/")[2] for path in paths} - {""})

    def list(self, folder: str, after: str = "") -> list[str]:
        return sorted(path for path, _ in self._listed(folder, after))

    def _listed(self, folder: str, after: str = "") -> Iterator[tuple[str, int]]:
        import obstore

        below = f"{checked_path(folder)}/"
        behind = checked_path(after) if after else None
        found = self._repeated(
            folder, lambda: obstore.list(self._client, folder, offset=behind, chunk_size=1000).collect()
        )
        # A key that ends with a slash is a console's "folder".
        return ((one["path"], one["size"]) for one in found if one["path"].startswith(below))

    def _repeated(self, path: str, look: Callable[[], _T]) -> _T:
        """The library repeats requests, but no listing of which the answer breaks off."""
        deadline_s = time.monotonic() + RETRY_FOR_S
        for left in reversed(range(LISTINGS)):
            try:
                with self._named(path):
                    return look()
            except PermissionError:
                raise
            except OSError:
                if not left or time.monotonic() > deadline_s:
                    raise
        raise AssertionError("unreachable")

    # -- delete -------------------------------------------------------------------------------------------------------

    def delete(self, path: str) -> None:
        import obstore

        with self._named(checked_path(path), writes=True):
            obstore.delete(self._client, path)

    def delete_all(self, paths: Sequence[str]) -> None:
        import obstore

        wanted = [checked_path(path) for path in paths]
        if wanted:
            with self._named(wanted[0], writes=True):
                obstore.delete(self._client, wanted)  # 1,000 with each request

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
                credential_provider=None if access.access_key is None else _Keys(access),
            )
        except (BaseError, ValueError) as error:
            reason = self._reason(error)
            raise LocationError(f"checkpointLocation {self.root} cannot be an S3 location: {reason}") from None

    @contextlib.contextmanager
    def _named(self, path: str, *, writes: bool = False) -> Iterator[None]:
        """What the library raises, as what the interface promises; without its own traceback, which is long."""
        from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError

        try:
            yield
        except AlreadyExistsError as error:
            raise FileExistsError(errno.EEXIST, self._reason(error), self._name(path)) from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise PermissionError(errno.EACCES, self._reason(error), self._name(path)) from None
        except FileNotFoundError as error:
            if writes:  # there is no such bucket
                raise OSError(errno.EIO, self._reason(error), self._name(path)) from None
            raise FileNotFoundError(errno.ENOENT, "there is no such object", self._name(path)) from None
        except (BaseError, OSError) as error:
            raise OSError(errno.EIO, self._reason(error), self._name(path)) from None

    def _name(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def _reason(self, error: BaseException) -> str:
        """The library's first line and what the server said; nothing else of an answer, which may quote a token."""
        text = without_secrets(self._access.without_secrets(str(error)))
        said = [match[1].strip() for match in (_CODE.search(text), _MESSAGE.search(text)) if match]
        first = text.split("\n", 1)[0].split("<", 1)[0].strip(" :")
        return ": ".join([first[:_MAX_REASON], *said])


class _Keys:
    """Those that were given, instead of the environment's: a session token that is there belongs to other ones."""

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
        return "_Keys(***)"


class _S3File(DataFile):
    """A single put if it is small, else a multipart upload that goes on while more is written."""

    def __init__(self, store: S3Store, path: str) -> None:
        import obstore

        self._store = store
        self._path = path
        self._gathered = bytearray()
        self._writer: Any = obstore.open_writer(
            store._client, path, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )
        self._durable = False
        self._closing = False

    def write(self, data: bytes) -> None:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), GATHERED_BYTES):
            self._gathered += view[start : start + GATHERED_BYTES]
            if len(self._gathered) >= GATHERED_BYTES:
                self._hand_over()

    def close(self) -> None:
        if self._gathered:
            self._hand_over()
        self._closing = True
        with self._store._named(self._path, writes=True):
            self._writer.close()
        self._durable = True

    def abandon(self) -> None:
        if self._durable:
            return
        with contextlib.suppress(OSError):
            if not self._closing:
                with self._store._named(self._path, writes=True):
                    self._writer.__exit__(OSError, None, None)
                return
        with contextlib.suppress(OSError):  # what was said of the end got lost: it may be there
            self._store.delete(self._path)

    def _hand_over(self) -> None:
        """A copy: the library reads it in its own time, and the rows may change behind this call."""
        with self._store._named(self._path, writes=True):
            self._writer.write(bytes(self._gathered))
        self._gathered.clear()
