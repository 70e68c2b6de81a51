"""A real Chromium, driven by Playwright, and what must never happen in any page of the UI."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
SHOTS = Path(__file__).parents[2] / "artifacts" / "ui"
DESK = {"width": 1440, "height": 900}
PHONE = {"width": 375, "height": 812}
WAIT_MS = 20_000


def chromium() -> str:
    """Its path; skips the test, saying why, where there is none."""
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        pytest.skip("THE WEB UI IS NOT TESTED: there is no chromium here (Debian: apt-get install chromium)")
    return found


@contextmanager
def launched() -> Iterator[Browser]:
    """A headless browser that has nothing to do with the outside."""
    path = chromium()
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        quiet = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path=path, args=quiet)
        try:
            yield browser
        finally:
            browser.close()


def context_of(browser: Browser, **said: Any) -> BrowserContext:
    """Return a browser context, which pages share: cache, storage and window size."""
    context = browser.new_context(**{"viewport": DESK, "timezone_id": "UTC", **said})
    context.set_default_timeout(WAIT_MS)
    return context


class Tab:
    """One page, which is watched."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.url = url
        self.page: Page = context.new_page()
        self.wrong: list[str] = []
        self.foreign: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(f"page error: {error}"))
        self.page.on("console", self._heard)
        self.page.on("request", self._asked)

    def _heard(self, message: Any) -> None:
        # Chromium itself notes each answer that is no success; those the UI has to cope with.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.wrong.append(f"console: {message.text}")

    def _asked(self, request: Any) -> None:
        place = urlsplit(request.url)
        self.requests.append(place.path)
        if place.scheme not in ("data", "blob") and place.netloc != urlsplit(self.url).netloc:
            self.foreign.append(request.url)

    def go(self, address: str = "#/") -> Page:
        self.page.goto(f"{self.url}/{address}")
        return self.page

    def ask(self) -> None:
        """Have the page ask anew at once, as it does when its tab comes to the front."""
        self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def hide(self, hidden: bool) -> None:
        """Hide the page as the browser does when another tab is in front."""
        self.page.evaluate(
            """(hidden) => {
              Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
              document.dispatchEvent(new Event("visibilitychange"));
            }""",
            hidden,
        )

    def shot(self, name: str, whole: bool = True) -> None:
        """Take a screenshot for people: of the whole page, or of the visible part."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png", full_page=whole, animations="disabled")

    def leave(self) -> None:
        """Go to an address that requests nothing.

        Raises:
            AssertionError: the page did what no page may do.
        """
        self.page.unroute_all(behavior="ignoreErrors")  # what is asked for just now is not waited for
        self.page.evaluate("location.hash = '#/nothing'")
        self._check()

    def close(self) -> None:
        """Raises AssertionError if the page did what none may."""
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.close()
        self._check()

    def _check(self) -> None:
        wrong, foreign = self.wrong[:], self.foreign[:]
        self.wrong.clear()
        self.foreign.clear()
        assert not wrong, wrong
        assert not foreign, f"requests to others: {foreign}"


OpenTab = Callable[..., Tab]
"""``open_tab(url, **context)``, see the fixture."""

UNNAMED = """() => {
  const named = (node) => (node.getAttribute('aria-label') || node.textContent || node.title || '').trim()
    || (node.id && document.querySelector(`label[for="${node.id}"]`)?.textContent.trim())
    || node.querySelector('img[alt]:not([alt=""])')?.alt;
  return [...document.querySelectorAll('a, button, input, select, summary, [role=img], [role=region], [tabindex="0"]')]
    .filter((node) => node.checkVisibility() && !named(node)).map((node) => node.outerHTML.slice(0, 200));
}"""
WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
DUPLICATES = """() => {
  const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
  return ids.filter((id, n) => ids.indexOf(id) !== n);
}"""


def assert_fit(page: Page) -> None:
    """Assert that controls have names, ids are unique, there is one h1, and the page is not wider than its window."""
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate(DUPLICATES) == []
    assert page.locator("h1").count() == 1
    assert page.locator("main").count() == 1
    assert page.evaluate(WIDER) <= 0
