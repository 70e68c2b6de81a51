"""Files of the web UI: how they are served, that none refers to the outside, and that they are readable."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import penstock
from penstock.rest.pages import FOLDER, MEDIA_TYPES, load_pages
from tests.support.places import ROOT
from tests.support.rest.rest_client import Client, assert_problem

TOKEN = "a-token-of-some-length"
FILES = sorted(FOLDER.iterdir())
SCRIPTS = [file for file in FILES if file.suffix == ".js"]


@pytest.fixture
def client() -> Iterator[Client]:
    with penstock.serve(token="") as server:
        yield Client(server.url)


def test_every_file_is_served_as_what_it_is_under_a_strict_policy(client: Client) -> None:
    for path, page in load_pages().items():
        answer = client.get(path)
        assert (answer.status, answer.headers["content-type"]) == (200, page.media_type)
        assert answer.text.encode() == page.body
        policy = answer.headers["content-security-policy"].split("; ")
        assert {"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} <= set(policy)
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = client.get(path, **{"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.text) == (304, "")
        head = client.send("HEAD", path)
        assert (head.status, head.headers["content-length"]) == (200, str(len(page.body)))


def test_files_are_asked_for_once_and_the_page_that_names_them_each_time(client: Client, tmp_path: Path) -> None:
    page = client.get("/")
    assert page.headers["cache-control"] == "no-cache"
    named = set(re.findall(r'"(/ui/[^"]+)"', page.text))
    assert {path.rpartition("/")[2] for path in named} == {file.name for file in FILES} - {"index.html"}
    for path in named:
        assert "immutable" in client.get(path).headers["cache-control"]
    changed = shutil.copytree(FOLDER, tmp_path / "ui")
    (changed / "main.js").write_text("// another release")
    assert not set(load_pages(changed)) & named


def test_only_files_of_the_ui_are_served(client: Client) -> None:
    for path in ("/ui/", "/ui/nothing.js", "/ui/../pages.py", "/ui/%2e%2e/pages.py", "/ui//etc/passwd"):
        assert_problem(client.get(path), 404, "web UI has no")
    answer = client.send("POST", "/", b"{}")
    assert_problem(answer, 405, "only read")
    assert answer.headers["allow"] == "GET, HEAD"


def test_the_page_needs_no_token_but_a_known_host() -> None:
    with penstock.serve(token=TOKEN) as server:
        client = Client(server.url)
        assert client.get("/").status == 200
        assert all(client.get(path).status == 200 for path in load_pages())
        assert_problem(client.get("/ui"), 401)
        assert_problem(client.get("/api/v1/queries"), 401)
        assert_problem(client.get("/", Host="evil.example.org"), 421)
        assert TOKEN not in client.get("/").text


def test_the_first_page_asks_for_all_modules_at_once() -> None:
    """Found one by one, each import would cost another round trip before anything is seen."""
    page = (FOLDER / "index.html").read_text()
    preloaded = set(re.findall(r'modulepreload" href="/ui/([\w-]+\.js)"', page))
    assert preloaded == {file.name for file in SCRIPTS} - {"theme.js"}
    named = set(re.findall(r'(?:href|src)="/ui/([\w.-]+)"', page))
    assert named == {file.name for file in FILES} - {"index.html"}
    for file in SCRIPTS:
        for imported in re.findall(r'from "\./([\w.-]+)"', file.read_text()):
            assert (FOLDER / imported).is_file(), f"{file.name} imports {imported}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_nothing_leads_outside_and_no_text_becomes_markup(file: Path) -> None:
    text = file.read_text().replace("http://www.w3.org/2000/svg", "")
    assert file.suffix in MEDIA_TYPES
    assert not re.findall(r"https?://|//[a-z]+\.", text)
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function", text
    )
    assert not re.findall(r"""\son\w+="|<style|style="|javascript:""", text)
    assert len(text.splitlines()) <= 300


def test_the_wheel_has_all_of_it() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["penstock"]
    package = ROOT / "src" / "penstock"
    for file in FILES:
        assert any(fnmatch(str(file.relative_to(package)), pattern) for pattern in patterns), file


# -- contrast, by WCAG 2.2: 4.5 for text, 3 for what is operated or has a meaning by its shape ------------------------

TOKENS = dict(re.findall(r"--([\w-]+): light-dark\(([^)]+)\)", (FOLDER / "tokens.css").read_text()))
GROUNDS = ("ground", "surface", "sunken")
TEXT = (
    [(text, ground) for text in ("text", "muted", "link") for ground in GROUNDS]
    + [(look, f"{look}-ground") for look in ("ok", "warn", "bad", "calm")]
    + [(text, f"{look}-ground") for text in ("text", "link") for look in ("ok", "warn", "bad", "calm")]
    + [(look, "surface") for look in ("ok", "bad", "danger")]
    + [("on-main", "main"), ("on-danger", "danger")]
)
MEANT = ("control-line", "focus", "main", "busy", "blocked", "heat", "series-1", "series-2", "series-3", "series-4")
SHAPES = [(shape, ground) for shape in MEANT for ground in ("surface", "ground")]


def luminance(colour: str) -> float:
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_wcag_does() -> None:
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "ground", "least"), [(*p, 4.5) for p in TEXT] + [(*p, 3.0) for p in SHAPES])
def test_colours_can_be_told_apart(front: str, ground: str, least: float, theme: int) -> None:
    colours = [TOKENS[name].split(", ")[theme] for name in (front, ground)]
    assert contrast(*colours) >= least, f"{front} on {ground}: {contrast(*colours):.2f}"


def test_every_colour_is_a_token() -> None:
    """A colour that is written elsewhere would be the same in light and dark, and nobody would have looked at it."""
    for name in ("style.css", "drawings.css"):
        text = (FOLDER / name).read_text()
        assert not re.findall(r"#[0-9a-fA-F]{3,8}\b(?!\")", text), name
        for used in re.findall(r"var\(--([\w-]+)\)", text):
            assert used in TOKENS, f"{name} uses --{used}"
