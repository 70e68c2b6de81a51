"""``penstock.serve()``: one server for all queries of this driver, on its own thread."""

from __future__ import annotations

import atexit
import dataclasses
import errno
import ipaddress
import secrets
import socket
import ssl
import sys
import threading
import time
from os import PathLike, fspath
from pathlib import Path

import uvicorn

from penstock.errors import ConfigError, ResourceError
from penstock.logs import daemon_thread, get_logger
from penstock.rest.app import create_app
from penstock.rest.connection import Connection
from penstock.rest.encryption import server_context
from penstock.rest.runtime_file import write_runtime_file
from penstock.rest.settings import PORT_RETRIES, ServerSettings
from penstock.spark.errors import pysparks_refusals

log = get_logger(__name__)

START_TIMEOUT_S = 10.0
GRACE_S = 2
"""Time for requests to end when the server stops. After it, their connections are cut."""
TOKEN_BYTES = 32
"""Random bytes of a token that the service makes."""
MAX_CONNECTIONS = 100
"""Most connections served at a time. Further ones get 503, so that clients cannot exhaust the driver's memory."""


class RestServer:
    """REST server. ``serve`` creates and starts it. It listens on its port from its creation.

    Attributes:
        url: address of the server, for example ``http://127.0.0.1:40123``; with TLS it begins with ``https``.
        token: the token that every request must carry, given or generated; None if none is required.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.token = secrets.token_urlsafe(TOKEN_BYTES) if settings.token is None else settings.token or None
        self._file: Path | None = None
        context = _context(settings)
        self._socket = _listening(settings)
        host, port = self._socket.getsockname()[:2]
        self.url = f"{'https' if context else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"
        self._server = uvicorn.Server(
            uvicorn.Config(
                create_app(dataclasses.replace(settings, token=self.token or "")),
                loop="asyncio",
                http=Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=MAX_CONNECTIONS,
                timeout_graceful_shutdown=GRACE_S,
                ssl_context_factory=None if context is None else lambda config, default: context,
            )
        )
        self._thread = daemon_thread(lambda: self._server.run(sockets=[self._socket]), "penstock-rest")
        self._stopping = threading.Lock()

    def _start(self) -> None:
        self._thread.start()
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline_s:
                self.stop()
                raise ResourceError(f"the REST service at {self.url} did not start; the log says why")
            time.sleep(0.005)
        log.info("the REST service listens at %s", self.url)
        if self._settings.key is None and not self._settings.loopback:
            log.warning("%s is no TLS: the token crosses the network in clear; see rest.tls.certificate", self.url)

        if self._settings.token is None:
            self._publish_token()
        elif not self.token:
            log.warning("%s asks for no token: every account on this machine can read and steer queries", self.url)

    @property
    def link(self) -> str:
        """Address of the web UI for a browser, with the token. It gives full access to the service.

        The token follows ``#``: browsers do not send that part to a server.
        """
        return f"{self.url}/#token={self.token}" if self.token else f"{self.url}/"

    def _publish_token(self) -> None:
        """Print the token once and write the runtime file. It must not be logged, as the service returns log lines."""
        print(f"Penstock's REST service and web UI: {self.link}", file=sys.stderr, flush=True)
        try:
            self._file = write_runtime_file(self.url, str(self.token), self._socket.getsockname()[1])
            atexit.register(self._remove_runtime_file)
        except OSError as error:
            log.warning(
                "the runtime file cannot be written, so `penstock query` needs the address and token: %s", error
            )

    def _remove_runtime_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.unlink(missing_ok=True)
            atexit.unregister(self._remove_runtime_file)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop the server and wait until its thread has ended and its port is free. Idempotent. Queries continue."""
        with self._stopping:
            self._server.should_exit = True
            if self._thread.ident is not None:
                self._thread.join()
            self._socket.close()
            self._remove_runtime_file()

    def __enter__(self) -> RestServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<penstock.RestServer {self.url} {'running' if self.running else 'stopped'}>"


class _Running:
    """The one server of this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.server: RestServer | None = None

    def fitting(self, settings: ServerSettings) -> RestServer | None:
        """Return the server if it runs. Raise ConfigError if it has other settings. Default settings fit any server."""
        if self.server is None or not self.server.running:
            return None
        if settings in (self.server._settings, ServerSettings()):
            return self.server
        raise ConfigError(f"{self.server!r} serves this driver already, with other settings: stop() it first")


_RUNNING = _Running()


class Reservation:
    """Server that a query requests. It holds the port from its creation and starts with the query.

    Raises:
        ConfigError, ResourceError: see ``serve``.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        with _RUNNING.lock:
            self._server = _RUNNING.fitting(settings) or RestServer(settings)

    def begin(self) -> RestServer:
        """Start the server and return it. If a server with equal settings was started meanwhile, return that one."""
        with _RUNNING.lock:
            running = _RUNNING.fitting(self._settings)
            if running is not None:
                return running
            self._server._start()
            _RUNNING.server = self._server
            return self._server

    def release(self) -> None:
        """Release the port, unless the server was started."""
        if self._server is not _RUNNING.server:
            self._server.stop()


@pysparks_refusals()
def serve(
    host: str = "127.0.0.1",
    port: int | range = 0,
    token: str | None = None,
    *,
    certificate: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    export_root: str | PathLike[str] | None = None,
) -> RestServer:
    """Start the REST service for all queries of this driver, including those that are started later (docs/rest.md).

    A process has one server. If it runs already and the arguments are the same, or none are given, it is returned. The
    options of a session or query can start it instead: ``spark.penstock.rest.enabled`` and the other options that begin
    with ``spark.penstock.rest.``.

    Args:
        host: an IP address of this machine, or ``localhost``. Any other than loopback requires a ``token``.
        port: 0: any free port. A range such as ``range(4040, 4050)``: its first free port. Any other number: this port
            or, if it is in use, the first free one of the next 16, with a warning. The server's ``url`` has the port.
        token: every request must carry it: ``Authorization: Bearer <token>``. None: the service creates a token, prints
            it once to stderr as part of an address for a browser, and writes it to a file that only this user can read,
            for ``penstock query``. Empty, on loopback only: no token is required, so every account on this machine can
            read and control the queries.
        certificate: a PEM file with the certificate chain. With ``certificate`` and ``key`` the service accepts only
            TLS connections.
        key: a PEM file without a password. Both files are read once, by this call.
        export_root: a folder or a prefix of a bucket. Requests may export, fork and copy snapshots below it, with the
            permissions of the driver. None: they cannot.

    Returns:
        The server. ``stop()`` stops it, as does leaving ``with penstock.serve() as server:``.

    Raises:
        ConfigError: an invalid host or port, a missing or weak token, invalid certificate files, or a server with other
            settings runs already.
        ResourceError: no requested port is free, or the server did not start.
    """
    reservation = reserve(host, port, token, certificate=certificate, key=key, export_root=export_root)
    try:
        return reservation.begin()
    finally:
        reservation.release()


def reserve(
    host: str = "127.0.0.1",
    port: int | range = 0,
    token: str | None = None,
    *,
    certificate: str | PathLike[str] | None = None,
    key: str | PathLike[str] | None = None,
    export_root: str | PathLike[str] | None = None,
    retries: int = PORT_RETRIES,
) -> Reservation:
    """Reserve a server (see ``serve``) without starting it. ``retries``: number of next ports to try."""
    paths = [None if path is None else fspath(path) for path in (certificate, key, export_root)]
    return Reservation(ServerSettings(host, port, token, paths[0], paths[1], paths[2], retries))


def _context(settings: ServerSettings) -> ssl.SSLContext | None:
    if settings.certificate is None or settings.key is None:
        return None
    return server_context(settings.certificate, settings.key)


def _listening(settings: ServerSettings) -> socket.socket:
    host = "127.0.0.1" if settings.host.lower() == "localhost" else settings.host
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        raise ConfigError(f"rest.host={host!r} is not an IP address; write for example 127.0.0.1 or 0.0.0.0") from None
    ports = settings.ports
    for port in ports:
        # The protocol is explicit, because otherwise asyncio does not disable Nagle's algorithm: the body of an answer
        # could wait 40 ms until the client acknowledges its headers.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen()
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or port == ports[-1]:
                tried = f"port {port}" if len(ports) == 1 else f"ports {ports[0]} to {port}"
                raise ResourceError(
                    f"the REST service cannot listen on {tried} of {host}: {error.strerror}; set rest.port to another "
                    "port, to a range such as 4040-4099, or to 0 for any free port"
                ) from error
            continue
        if port != ports[0]:
            log.warning("port %d of %s is taken; the REST service listens on port %d", ports[0], host, port)
        return listener
    raise AssertionError("there is no empty range of ports")
