"""Requests made up from the service's own OpenAPI document: every answer is as the document says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from query_running import Inbox, Start
from rest_client import Client

import penstock

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOKEN = "a-token-of-some-length"
EXAMPLES = 12
"""Per operation and phase."""


def test_schemathesis_finds_nothing(spark: SparkSession, inbox: Inbox, start: Start, tmp_path: Path) -> None:
    inbox.add([(n, n, float(n)) for n in range(10)])
    query = start(inbox.stream(spark), format="noop")
    query.processAllAvailable()
    query.snapshot(label="mine")
    with penstock.serve(token=TOKEN, export_root=tmp_path / "exports") as server:
        document = Client(server.url, TOKEN).get("/openapi.json").json
        for path in document["paths"].values():
            for operation in path.values():
                # No tag could be made up: every request has one that fits, and test_rest_changes.py has the others.
                said = [one for one in operation.get("parameters", []) if one["name"] != "if-match"]
                operation["parameters"] = said
                for parameter in said:
                    if parameter["name"] == "query_id":  # most requests are to be about a query that there is
                        parameter["schema"] = {"type": "string", "enum": [query.id, "unknown"]}
        # It is null while there is none, and schemathesis would take that for an id to go on with.
        del document["components"]["schemas"]["OperationResource"]["properties"]["snapshot"]
        described = tmp_path / "openapi.json"
        described.write_text(json.dumps(document))
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "run", str(described), "--url", server.url,
            "-H", f"Authorization: Bearer {TOKEN}", "-H", "If-Match: *", "--max-examples", str(EXAMPLES), "--seed", "1",
            "--checks", "all", "--no-color",
        ]  # fmt: skip
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert ran.returncode == 0, ran.stdout[-9000:] + ran.stderr[-1000:]
        assert Client(server.url, TOKEN).get(f"/api/v1/queries/{query.id}").status == 200
