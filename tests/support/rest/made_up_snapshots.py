"""Snapshots of a made-up query: what REST tells of them and does with them, answered in the browser's own network."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Page, Route

BASE_EVERY = 8
"""Snapshots that build on one whole table."""
DELTA_LIVES = 4
NEWEST = "it is the newest snapshot: the query goes on from it"
"""Why the newest cannot be deleted."""


@dataclass
class Asked:
    method: str
    path: str
    body: Any
    headers: dict[str, str]


@dataclass
class MadeUpSnapshots:
    """``asked``: what changes were sent. ``polls``: how often an operation is seen running before it ends as
    ``outcome`` says. ``refused``: by path, the problem that a request gets."""

    count: int = 12
    export_root: bool = True
    polls: int = 0
    outcome: dict[str, Any] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=lambda: {"message": "Writing", "done": 3, "total": 8})
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    sharing_asked: int = 0

    def __post_init__(self) -> None:
        self.rows = [self._row(number) for number in range(1, self.count + 1)]
        self._left = 0

    def of(self, page: Page) -> MadeUpSnapshots:
        """Assign snapshots to this page from now on."""
        page.route("**/api/v1/queries/*", self._query)
        page.route("**/api/v1/queries/*/snapshots**", self._answer)
        page.route("**/api/v1/queries/*/snapshots/**", self._answer)
        page.route("**/api/v1/operations/*", self._operation)
        return self

    def ids(self) -> list[str]:
        return [row["id"] for row in self.rows]

    def sharing(self) -> dict[str, Any]:
        """A table that is written whole now and then, what changed since, what was in flight, and what says so."""
        there = self.ids()
        users: dict[str, tuple[int, str, list[str]]] = {}
        for number in range(1, self.count + 1):
            if (name := f"chk-{number}") not in there:
                continue
            base = 1 + (number - 1) // BASE_EVERY * BASE_EVERY
            used = [(f"snapshots/chk-{base}/state-0.arrow", 48_000_000 + base * 2_000_000, "state")]
            for delta in range(max(base + 1, number - DELTA_LIVES), number + 1):
                used.append((f"snapshots/chk-{delta}/state-1.arrow", 3_000_000 + delta * 250_000, "state"))
            used.append((f"snapshots/{name}/inflight-0.arrow", 900_000 * (1 + number % 5), "inflight"))
            used.append((f"snapshots/{name}/metadata.json", 41_000, "metadata"))
            if number % 11 == 0:
                used.append((f"portable/{name}/orders.parquet", 9_000_000, "portable"))
            for path, size, kind in used:
                users.setdefault(path, (size, kind, []))[2].append(name)
        files = [{"path": p, "bytes": size, "kind": kind, "snapshots": by} for p, (size, kind, by) in users.items()]
        return {"files": sorted(files, key=lambda one: -one["bytes"]), "snapshots": there, "truncated": False}

    def _row(self, number: int) -> dict[str, Any]:
        asked_for = number % 5 == 0
        return {
            "id": f"chk-{number}",
            "checkpoint": number,
            "label": "before-upgrade" if asked_for else "",
            "note": "schema v3, asked for by ops" if asked_for else "",
            "kind": "requested" if asked_for else "periodic",
            "alignment": "auto",
            "created_at_ms": int(time.time() * 1000) - (self.count - number) * 480_000,
            "generation": 1,
            "parallelism": 16,
            "subtasks": 800,
            "unaligned_subtasks": 640 if number % 3 == 0 else 0,
            "state_rows": 1_200_000 + number,
            "state_bytes": 64_000_000,
            "inflight_rows": 9_300 * (number % 3),
            "inflight_bytes": 900_000 * (1 + number % 5),
            "bytes": 71_000_000,
            "exclusive_bytes": 941_000 * (1 + number % 5),
            "in_lineage": True,
            "problem": "",
            "not_deletable": NEWEST if number == self.count else "",
        }

    def _query(self, route: Route) -> None:
        if route.request.method != "GET":
            self._begin(route, self._heard(route))
            return
        answer = route.fetch()
        body = answer.json()
        if "spec" in body:
            body["service"] = {"export_root": self.export_root}
        route.fulfill(response=answer, json=body)

    def _heard(self, route: Route) -> Asked:
        request = route.request
        body = json.loads(request.post_data) if request.post_data else None
        one = Asked(request.method, unquote(urlsplit(request.url).path), body, request.headers)
        self.asked.append(one)
        return one

    def _answer(self, route: Route) -> None:
        path = urlsplit(route.request.url).path
        place = path.partition("/snapshots")[2].strip("/").split("/")
        if route.request.method != "GET":
            one = self._heard(route)
            if not self._refuses(route, path):
                self._change(route, one, place[0])
        elif self._refuses(route, path):
            pass
        elif place == [""]:
            listing = {"location": "/data/checkpoints/orders-by-region", "owner": 1, "committed_epoch": self.count}
            route.fulfill(json={**listing, "snapshots": self.rows})
        elif place == ["sharing"]:
            self.sharing_asked += 1
            route.fulfill(json=self.sharing())
        elif place[1:] == ["deletion"]:
            paths = [f"snapshots/{place[0]}/inflight-0.arrow", f"snapshots/{place[0]}/metadata.json"]
            route.fulfill(json={"snapshot": place[0], "files": 2, "bytes": 941_000, "paths": paths})
        elif place[0] in self.ids():
            route.fulfill(json=self._shown(place[0]))
        else:
            self._refuse(route, path, 404, f"there is no snapshot {place[0]}")

    def _shown(self, name: str) -> dict[str, Any]:
        row = next(row for row in self.rows if row["id"] == name)
        nothing = {"vertex": "", "explanation": "Nothing was in flight.", "bytes": 0, "subtask": -1, "share": 0.0}
        empty: dict[str, Any] = {"operators": [], "edges": [], "subtasks": []}
        return {"snapshot": row, "max_parallelism": 128, "drained": False, "bottleneck": nothing, **empty}

    def _refuses(self, route: Route, path: str) -> bool:
        status, detail = next((said for end, said in self.refused.items() if path.endswith(end)), (0, ""))
        if status:
            self._refuse(route, path, status, detail)
        return bool(status)

    def _refuse(self, route: Route, path: str, status: int, detail: str) -> None:
        document = {"title": "Conflict", "status": status, "detail": detail, "instance": path}
        route.fulfill(status=status, json=document, content_type="application/problem+json")

    def _change(self, route: Route, one: Asked, name: str) -> None:
        if one.method == "PATCH":
            row = next(row for row in self.rows if row["id"] == name)
            row.update({member: value or "" for member, value in one.body.items()})
            route.fulfill(json=row)
            return
        if one.method == "DELETE":
            self.rows = [row for row in self.rows if row["id"] != name]
        self._begin(route, one)

    def _begin(self, route: Route, one: Asked) -> None:
        self._left = self.polls
        self._begun, self._id = one, str(uuid.uuid4())  # a page follows an operation once
        route.fulfill(status=202, json=self._told(), headers={"location": f"/api/v1/operations/{self._id}"})

    def _operation(self, route: Route) -> None:
        self._left -= 1
        route.fulfill(json=self._told())

    def _told(self) -> dict[str, Any]:
        ends = {"error": None, "snapshot": None, "freed_files": None, "freed_bytes": None, "location": None}
        told = {"id": self._id, "query_id": self._begun.path.split("/")[4], "verb": "made-up", **ends}
        if self._left > 0:
            return {**told, "state": "running", "progress": self.progress}
        return {**told, "state": "succeeded", "progress": None, **self.outcome}
