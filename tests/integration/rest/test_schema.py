"""Requests made up from the service's own OpenAPI document: every answer is as the document says, and every operation
is carried out at least once, not only refused."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import penstock
from penstock.rest import server as rest_server
from tests.support.effort import some
from tests.support.queries.query_running import Inbox, Start
from tests.support.rest.rest_client import Client

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOKEN = "a-token-of-some-length"
EXAMPLES = some(12, 2)
"""Per operation and phase."""


class Recorded:
    """The application, and what it has answered: method, path, status."""

    def __init__(self, app: ASGIApp) -> None:
        self.answers: set[tuple[str, str, int]] = set()
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.answers.add((scope["method"], scope["path"], message["status"]))
            await send(message)

        await self._app(scope, receive, noted)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    made: list[Recorded] = []
    create = rest_server.create_app

    def create_recorded(settings: Any) -> Recorded:
        made.append(Recorded(create(settings)))
        return made[-1]

    monkeypatch.setattr(rest_server, "create_app", create_recorded)
    return made


def test_schemathesis_finds_nothing(
    spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path, recorded: list[Recorded]
) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark), format="noop")
    query.processAllAvailable()
    kept = [query.snapshot(label="mine").id, query.snapshot().id]
    doomed = [query.snapshot().id for _ in range(4)]
    with penstock.serve(token=TOKEN, export_root=tmp_path / "exports") as server:
        client = Client(server.url, TOKEN)
        begun = client.send(
            "POST", f"/api/v1/queries/{query.id}/snapshots/verifications", "{}", {"Content-Type": "application/json"}
        )
        described = client.get("/openapi.json").json
        known = {
            "query_id": query.id, "operation_id": begun.json["id"], "checkpoint": int(kept[0].removeprefix("chk-"))
        }  # fmt: skip
        name_what_there_is(described, known, kept, doomed)
        examine(goes_on(described), server.url, tmp_path)
        assert query.isActive
        carried_out = {(method, described_as(path, described))
                       for method, path, status in recorded[0].answers if status < 300}  # fmt: skip
        never_carried_out = set(operations(described)) - carried_out
        assert not never_carried_out
        examine(described, server.url, tmp_path, "--include-path", "/api/v1/queries/{query_id}")
        assert client.get(f"/api/v1/queries/{query.id}").status == 200


def examine(document: Any, url: str, folder: Path, *more: str) -> None:
    described = folder / "openapi.json"
    described.write_text(json.dumps(document))
    # use_after_free takes `DELETE .../snapshots?snapshot=chk-4` for the end of everything below `.../snapshots`.
    command = [
        str(Path(sys.executable).with_name("schemathesis")), "run", str(described), "--url", url,
        "-H", f"Authorization: Bearer {TOKEN}", "-H", "If-Match: *", "--max-examples", str(EXAMPLES), "--seed", "1",
        "--checks", "all", "--exclude-checks", "use_after_free", "--no-color", *more,
    ]  # fmt: skip
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stdout[-9000:] + ran.stderr[-1000:]


def operations(document: Any) -> Iterator[tuple[str, str]]:
    for path, methods in document["paths"].items():
        for method in methods:
            yield method.upper(), path


def described_as(target: str, document: Any) -> str:
    """The path in the document that this one is: a part that is said goes before a variable."""
    fitting = [path for path in document["paths"] if compile_path(path)[0].match(target)]
    return min(fitting, key=lambda path: path.count("{"), default="")


def name_what_there_is(document: Any, known: dict[str, Any], kept: list[str], doomed: list[str]) -> None:
    """Most requests are to be about something that there is; and what is kept is not to be deleted."""
    for method, path in operations(document):
        operation = document["paths"][path][method.lower()]
        # No tag could be made up: every request has one that fits, and test_changes.py has the others.
        said = [one for one in operation.get("parameters", []) if one["name"] != "if-match"]
        operation["parameters"] = said
        for parameter in said:
            if parameter["name"] in known:
                there = known[parameter["name"]]
                unknown = 999_999 if isinstance(there, int) else "unknown"
                parameter["schema"] = {"type": type_name(there), "enum": [there, unknown]}
            elif parameter["name"] == "snapshot":
                half = len(doomed) // 2  # one half for each way to delete: neither leaves nothing for the other
                deletable = doomed[:half] if parameter["in"] == "query" else doomed[half:]
                ids = (deletable if method == "DELETE" else kept) + ["chk-999999"]
                one = {"type": "string", "enum": ids}
                several = {"type": "array", "items": one, "minItems": 1, "maxItems": 3}
                parameter["schema"] = several if parameter["in"] == "query" else one
        name_targets(path, operation, document)
    schemas = document["components"]["schemas"]
    schemas["ComparisonRequest"]["properties"]["to"]["enum"] = [*kept, "mine", "unknown"]
    schemas["VerificationRequest"]["properties"]["snapshot"]["enum"] = [*kept, "mine", "unknown", ""]
    # It is null while there is none, and schemathesis would take that for an id to go on with.
    del schemas["OperationResource"]["properties"]["snapshot"]


def name_targets(path: str, operation: Any, document: Any) -> None:
    """Give each operation that writes to a folder names of its own, because a folder of another one is refused."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if content.get("schema", {}).get("$ref") == "#/components/schemas/TargetRequest":
        content["schema"] = copy.deepcopy(document["components"]["schemas"]["TargetRequest"])
        named = content["schema"]["properties"]
        own = [f"{path.rpartition('/')[2]}-{n}" for n in range(50)]
        named["name"] = {"anyOf": [{"type": "string", "enum": own}, named["name"]]}


def type_name(value: object) -> str:
    return "integer" if isinstance(value, int) else "string"


def goes_on(document: Any) -> Any:
    """The same, without what ends the query: behind that most requests could only be refused."""
    narrowed = copy.deepcopy(document)
    state = narrowed["components"]["schemas"]["SpecPatch"]["properties"]["state"]
    assert set(state["enum"]) == {"running", "suspended", "stopped"}
    state["enum"] = ["running"]
    return narrowed
