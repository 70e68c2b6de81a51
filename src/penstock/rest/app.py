"""The ASGI application: all routes and the web UI. The guard checks every request first."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.types import ASGIApp

from penstock.rest import (
    metrics,
    routes_changes,
    routes_configuration,
    routes_logs,
    routes_queries,
    routes_snapshot_changes,
    routes_snapshot_checks,
    routes_snapshot_copies,
    routes_snapshots,
)
from penstock.rest.answers import KeptAnswers
from penstock.rest.guard import Guard
from penstock.rest.pages import Pages
from penstock.rest.problems import Problem, answer_problems
from penstock.rest.settings import ServerSettings
from penstock.version import __version__


def create_app(settings: ServerSettings) -> ASGIApp:
    """Create the application. ``/openapi.json`` describes its routes, and requires the token like every route."""
    app = FastAPI(title="Penstock", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.export_root = settings.export_root
    answer_problems(app)
    snapshots = (routes_snapshots, routes_snapshot_checks, routes_snapshot_changes, routes_snapshot_copies)
    for routes in (routes_queries, routes_changes, *snapshots, routes_logs, routes_configuration, metrics):
        app.include_router(routes.router)
    # The OpenAPI document is created at the first request: it takes longer than the rest of a server's start.
    app.openapi = cache(lambda: _described(app, settings))  # type: ignore[method-assign]
    return Guard(Pages(KeptAnswers(app)), settings)


def _described(app: FastAPI, settings: ServerSettings) -> dict[str, Any]:
    """Return FastAPI's OpenAPI document, with ``Problem`` in place of FastAPI's validation errors."""
    document = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas.update(problem.pop("$defs", {}))
    schemas["Problem"] = problem
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    if settings.token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document
