"""The first painting of a query's page in a headless Chromium on loopback, beside an empty page of the same server.

50 vertices of 16 subtasks each, made up: nothing else runs. Every visit has a browser context of its own, so nothing
is in a cache. The reference is a page with one script, which adds one element.
"""

from __future__ import annotations

import shutil
from typing import Any
from unittest import mock

from playwright.sync_api import Browser, sync_playwright

import penstock
from benchmarks.lib import harness
from penstock.queries.active_queries import ACTIVE_QUERIES
from penstock.rest import pages
from tests.support.rest.made_up_query import MadeUpQuery

ROUNDS = 20
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
DESK = {"width": 1440, "height": 900}
WAIT_MS = 20_000
EMPTY = {
    "/ui/empty.html": b'<!doctype html><title>Empty</title><body><script type="module" src="/ui/empty.js"></script>',
    "/ui/empty.js": b"document.body.append(Object.assign(document.createElement('p'), {className: 'vertex'}));",
}
PAINTED = """([count, limitMs]) => {
  window.paintedMs = new Promise((resolve, reject) => {
    const look = () => {
      const seen = document.querySelectorAll('.vertex').length;
      if (performance.now() > limitMs) return reject(new Error(`${seen} of ${count} after ${limitMs} ms`));
      if (seen < count) return requestAnimationFrame(look);
      // The frame in which they are is on its way; what the next one's callback leaves behind runs when it is painted.
      requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
    };
    look();
  });
}"""
"""``window.paintedMs``: since the navigation began, once so many elements were painted."""


def run(rounds: int) -> dict[str, Any]:
    """Milliseconds of each visit; ``skipped`` says why there are none."""
    path = next((path for path in map(shutil.which, NAMES) if path), None)
    if path is None:
        skipped = "not measured: there is no chromium here (Debian: apt-get install chromium)"
        print(f"  THE FIRST PAINTING IS {skipped.upper()}", flush=True)
        return {"skipped": skipped}
    query = MadeUpQuery()
    facts = query.facts()
    with (
        mock.patch.object(pages, "load_pages", _with_empty_page),
        mock.patch.object(ACTIVE_QUERIES, "known", return_value=[facts]),
        penstock.serve(token="") as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        visits = {
            "empty": (f"{server.url}/ui/empty.html", 1),
            "query": (f"{server.url}/#/queries/{query.query_id}/graph", query.vertices),
        }
        found: dict[str, list[float]] = {name: [] for name in visits}
        for number in range(rounds + 1):
            for name in sorted(visits, reverse=number % 2 == 1):
                painted_ms = _visit(browser, *visits[name])
                if number:  # the browser itself has just been started
                    found[name].append(painted_ms)
        browser.close()
    return {name: harness.quantiles(values) for name, values in found.items()}


def _with_empty_page() -> dict[str, pages.Page]:
    return {**_LOAD_PAGES(), **{path: pages.Page(body, _media_type(path), '"empty"') for path, body in EMPTY.items()}}


_LOAD_PAGES = pages.load_pages


def _media_type(path: str) -> str:
    return pages.MEDIA_TYPES[path[path.rindex(".") :]]


def _visit(browser: Browser, url: str, elements: int) -> float:
    context = browser.new_context(viewport=DESK)
    try:
        page = context.new_page()
        page.add_init_script(f"({PAINTED})([{elements}, {WAIT_MS}])")
        page.goto(url)
        painted: float = page.evaluate("window.paintedMs")
        return painted
    finally:
        context.close()
