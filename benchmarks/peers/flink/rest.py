"""Flink's REST API, as far as it is used: JSON over loopback, and the upload of a jar."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.peers.flink.installation import FlinkError

TIMEOUT_S = 60.0
"""Of one request: starting a job compiles it in the JobManager."""
BOUNDARY = "penstock-peer-jar"

Answer = dict[str, Any]


class Rest:
    """Answers are Flink's own JSON: https://nightlies.apache.org/flink/flink-docs-release-2.3/docs/ops/rest_api/."""

    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback is behind no proxy

    def get(self, path: str) -> Any:
        return self._request("GET", path, None, "application/json")

    def post(self, path: str, body: Answer) -> Any:
        return self._request("POST", path, json.dumps(body).encode(), "application/json")

    def patch(self, path: str) -> Any:
        return self._request("PATCH", path, b"{}", "application/json")

    def upload(self, jar: Path) -> str:
        """Returns the jar's id in this cluster."""
        head = (
            f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="jarfile"; filename="{jar.name}"\r\n'
            "Content-Type: application/x-java-archive\r\n\r\n"
        )
        body = head.encode() + jar.read_bytes() + f"\r\n--{BOUNDARY}--\r\n".encode()
        answer = self._request("POST", "/jars/upload", body, f"multipart/form-data; boundary={BOUNDARY}")
        return Path(answer["filename"]).name

    def _request(self, method: str, path: str, body: bytes | None, content_type: str) -> Any:
        request = urllib.request.Request(self._root + path, body, {"Content-Type": content_type}, method=method)
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as response:
                return json.loads(response.read() or b"{}")
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace")
            raise FlinkError(f"Flink refused {method} {path} ({error.code}): {reason[:2000]}") from error
        except OSError as error:
            raise FlinkError(f"Flink does not answer {method} {path}: {error}") from error
