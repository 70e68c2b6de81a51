"""A client of the REST service that sends what it is told to, well-formed or not."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    def __init__(self, url: str, token: str | None = None) -> None:
        self.place = urlsplit(url).netloc
        self._token = token

    def send(
        self, method: str, path: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        said = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        connection = http.client.HTTPConnection(self.place, timeout=30)
        try:
            connection.request(method, path, body, {**said, **(headers or {})})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, headers=headers)


def run_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run on a thread of its own: a browser that another test has open keeps an event loop on this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def assert_problem(answer: Answer, status: int, *words: str) -> None:
    """A problem document of this status, that says all of this and has no traceback."""
    assert answer.status == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json
    assert document["status"] == status
    assert document["title"]
    for word in words:
        assert word in document["detail"], document
    assert "Traceback" not in answer.text
