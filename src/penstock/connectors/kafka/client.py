"""Configuration of the Kafka client: translates ``kafka.*`` options from the Java client's names to librdkafka's.

Most names are the same. Names that differ are translated. Options that only a JVM supports are refused, with an
alternative. All other options are passed to librdkafka, which refuses unknown ones. This module treats all values as
secrets, except host names and the paths of key files: no message contains them, and ``ClientConfig`` does not print its
settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.config import shown
from penstock.connectors.kafka.options import CLIENT_PREFIX, WHERE
from penstock.errors import ConfigError, NotSupported, ResourceError
from penstock.logs import get_logger
from penstock.private_files import check_private

if TYPE_CHECKING:
    from confluent_kafka import Consumer

log = get_logger(__name__)

BOOTSTRAP = "bootstrap.servers"

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "sasl.mechanism": "sasl.mechanisms",
    "ssl.protocol": "",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "max.poll.records": "",
    "default.api.timeout.ms": "",
}
"""Java's name -> librdkafka's name; "" if librdkafka has no counterpart and the option can be ignored."""

_REFUSED = {
    "auto.offset.reset": "say startingOffsets instead: which rows are read is kept in the checkpoint",
    "enable.auto.commit": "positions are kept in the checkpoint and never committed to the consumer group",
    "enable.auto.offset.store": "positions are kept in the checkpoint and never committed to the consumer group",
    "enable.partition.eof": "the source needs it on",
    "key.deserializer": "keys are binary; cast them in the query",
    "value.deserializer": "values are binary; cast them in the query",
    "interceptor.classes": "interceptors can change rows",
    "partition.assignment.strategy": "partitions are assigned by the source, not by the consumer group",
    "group.protocol": "partitions are assigned by the source, not by the consumer group",
    "metric.reporters": "it names Java classes; leave it out",
    "security.providers": "it names Java classes; leave it out",
    "ssl.engine.factory.class": "it names a Java class; leave it out",
    "ssl.provider": "it names a Java class; leave it out",
    "sasl.client.callback.handler.class": "it names a Java class; use sasl.oauthbearer.* for tokens",
    "sasl.login.callback.handler.class": "it names a Java class; use sasl.oauthbearer.* for tokens",
    "sasl.login.class": "it names a Java class; leave it out",
}

_SERVER = re.compile(
    r"(?:(?:PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(?:[\w.%-]{1,253}|\[[0-9A-Fa-f:.%\w]{2,60}\]):(?P<port>[0-9]{1,5})",
    re.IGNORECASE,
)
_JAAS = re.compile(r"\s*+(?P<module>[\w.]++)\s++required\b(?P<rest>.*)", re.DOTALL)
_JAAS_OPTION = re.compile(r"\b(\w++)\s*+=\s*+(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;]+))")
_PASSWORD_MODULES = ("PlainLoginModule", "ScramLoginModule")

_ALWAYS = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
}
_DEFAULTS = {
    # Java's default, and so Spark's: librdkafka's own is read_committed.
    "isolation.level": "read_uncommitted",
    # Size of the rows prefetched per subtask: enough to keep a slot busy, and little of a slot's memory.
    "queued.max.messages.kbytes": "16384",
    # Pause of fetching when the queue is full. librdkafka's default of one second would reduce the throughput.
    "fetch.queue.backoff.ms": "10",
    "client.id": "penstock",
}


class _ClientLog:
    """Logger for the log lines of librdkafka. It writes them at level DEBUG, because the source reports problems."""

    def log(self, level: int, text: str, *args: object) -> None:
        log.debug(text, *args)


@dataclass(frozen=True)
class ClientConfig:
    """Configuration of librdkafka's consumers. ``servers`` may be printed; ``settings`` contains secrets."""

    servers: str
    settings: Mapping[str, str] = field(repr=False)

    def consumer(self, group: str, on_error: Callable[[Any], None]) -> Consumer:
        """Create a consumer without partitions. It is not connected yet.

        Args:
            group: consumer group, unless the options name one. No offset is ever committed to it.
            on_error: gets client-wide KafkaErrors while the consumer is polled.

        Raises:
            ConfigError: librdkafka refuses a setting, or other users can read a key file.
            ResourceError: the client is not installed.
        """
        kafka = client_library()
        self._check_keys()
        settings = {"group.id": group, **self.settings, "error_cb": on_error}
        try:
            consumer: Consumer = kafka.Consumer(settings, logger=_ClientLog())
        except kafka.KafkaException as error:
            # librdkafka's text names the setting. It has the value only for settings with a fixed set of values.
            raise ConfigError(f"{WHERE}: the Kafka client refuses its settings: {error.args[0].str()}") from None
        return consumer

    def _check_keys(self) -> None:
        """Refuse key files that other users can read. The client itself reports missing files."""
        named = ["sasl.kerberos.keytab"]
        if "ssl.key.password" not in self.settings:
            named.append("ssl.key.location")
        for name in named:
            with suppress(OSError):
                if name in self.settings:
                    check_private(f"option kafka.{name} of the {WHERE}:", self.settings[name])


def client_library() -> Any:
    """Import and return the module ``confluent_kafka``.

    Raises:
        ResourceError: the module is not installed.
    """
    try:
        import confluent_kafka
    except ImportError:
        raise ResourceError(
            "reading from Kafka needs the package confluent-kafka, which is not installed for this Python; "
            "pip install 'penstock[kafka]'"
        ) from None
    return confluent_kafka


def client_config(texts: Mapping[str, str]) -> ClientConfig:
    """Parse the ``kafka.*`` options of a reader. Other options are ignored.

    Raises:
        ConfigError: ``kafka.bootstrap.servers`` is missing, or a value is invalid.
        NotSupported: an option is refused, for example because only a Java client supports it.
    """
    given = {
        name.lower().removeprefix(CLIENT_PREFIX): str(text)
        for name, text in texts.items()
        if name.lower().startswith(CLIENT_PREFIX)
    }
    if not given.get(BOOTSTRAP, "").strip():
        raise ConfigError(f"option kafka.{BOOTSTRAP} of the {WHERE} must be given, for example host1:9092,host2:9092")
    if wrong := next((one for one in given[BOOTSTRAP].split(",") if not _is_server(one.strip())), None):
        raise ConfigError(
            f"option kafka.{BOOTSTRAP} of the {WHERE}: {shown(wrong)} is not a host with a port; write for example "
            "host1:9092,host2:9092"
        )
    if not given.get("group.id", "x").strip():
        raise ConfigError(f"option kafka.group.id of the {WHERE} is empty; give a name, or leave it out")
    refused = sorted(name for name in given if name in _REFUSED)
    if refused:
        raise NotSupported(f"option kafka.{refused[0]} of the {WHERE}: {_REFUSED[refused[0]]}")
    settings = _stores(given) | _login(given)
    for name in [n for n in given if n not in _TRANSLATED]:
        renamed = _RENAMED.get(name, name)
        if renamed:
            settings[renamed] = _value(name, given[name])
    return ClientConfig(given[BOOTSTRAP].strip(), {**_DEFAULTS, **settings, **_ALWAYS})


def _is_server(text: str) -> bool:
    match = _SERVER.fullmatch(text)
    return not text or (match is not None and 1 <= int(match["port"]) <= 65535)


def _value(name: str, text: str) -> str:
    if name == "ssl.endpoint.identification.algorithm" and not text.strip():
        return "none"
    if name in ("receive.buffer.bytes", "send.buffer.bytes") and text.strip() == "-1":
        return "0"
    return text


_TRANSLATED = {
    "sasl.jaas.config",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
}


def _login(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for the user and password from ``sasl.jaas.config``."""
    text = given.get("sasl.jaas.config")
    if text is None:
        return {}
    match = _JAAS.match(text)
    module = match["module"].rsplit(".", 1)[-1] if match else ""
    if match is None or module not in _PASSWORD_MODULES:
        raise NotSupported(
            f"option kafka.sasl.jaas.config of the {WHERE}: only PlainLoginModule and ScramLoginModule with username "
            "and password are understood; set kafka.sasl.* as librdkafka names them (sasl.username, sasl.password, "
            "sasl.kerberos.*, sasl.oauthbearer.*)"
        )
    found = {name: _unquoted(parts) for name, *parts in _JAAS_OPTION.findall(match["rest"])}
    if not {"username", "password"} <= found.keys():
        raise ConfigError(f"option kafka.sasl.jaas.config of the {WHERE}: username or password is missing")
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _unquoted(parts: list[str]) -> str:
    return re.sub(r"\\(.)", r"\1", next((part for part in parts if part), ""))


def _stores(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings for trust stores in PEM and key stores in PEM or PKCS#12. JKS is not supported."""
    settings: dict[str, str] = {}
    trust, keys = given.get("ssl.truststore.location"), given.get("ssl.keystore.location")
    if trust is not None:
        if given.get("ssl.truststore.type", "JKS").strip().upper() != "PEM":
            raise _not_pem("ssl.truststore", "keytool -exportcert -rfc writes the certificates as PEM")
        settings["ssl.ca.location"] = trust
    if keys is not None:
        match given.get("ssl.keystore.type", "JKS").strip().upper():
            case "PEM":
                settings |= {"ssl.certificate.location": keys, "ssl.key.location": keys}
            case "PKCS12":
                settings["ssl.keystore.location"] = keys
            case _:
                raise _not_pem("ssl.keystore", "keytool -importkeystore -deststoretype PKCS12 converts it")
    return settings


def _not_pem(store: str, way: str) -> NotSupported:
    return NotSupported(
        f"option kafka.{store}.type of the {WHERE}: Java's own key stores cannot be read outside a JVM; {way}, then "
        f"set kafka.{store}.type and kafka.{store}.location"
    )
