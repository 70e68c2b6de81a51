"""A query is named by its name, its id or the beginning of that; a shell completes both."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.query.models import Query
from penstock.cli.query.naming import chosen
from penstock.errors import ServiceRefused
from tests.support.cli.calling import query
from tests.support.cli.fake_service import Reply, fake_service, query_document


def documents() -> list[dict[str, Any]]:
    return [
        query_document(id="5b0c1f2e-1", name="sums"),
        query_document(id="5b0c77aa-2", name="counts"),
        query_document(id="77770000-3", name="5b0c"),
        query_document(id="88880000-4", name="counts", state="stopped"),
        query_document(id="99990000-5", name=None),
        query_document(id="aaaa0000-6", name="twice"),
        query_document(id="aaaa0000-7", name="twice"),
        query_document(id="bbbb0000-8", name="has blanks"),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sums", "5b0c1f2e-1"),
        ("5b0c1", "5b0c1f2e-1"),
        ("5b0c77aa-2", "5b0c77aa-2"),
        ("counts", "5b0c77aa-2"),  # of those of a name, the one that runs
        ("8888", "88880000-4"),
        ("5b0c", "77770000-3"),  # a name is meant rather than the beginning of an id
        ("9", "99990000-5"),
    ],
)
def test_what_is_meant(text: str, found: str) -> None:
    assert chosen(msgspec.convert(documents(), list[Query]), text, "here").id == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("twice", r"'twice' fits 2 queries: twice \(aaaa0000\) running, .* write more of the id of one, as aaaa0000-6"),
        ("aaaa", "'aaaa' fits 2 queries"),
        ("5b", "'5b' fits 2 queries: sums .*, counts"),
        ("none", r"there is no query 'none' at here: it knows sums \(5b0c1f2e\) running, .* and 3 more"),
        ("", "there is no query ''"),
        ("sum", "there is no query 'sum'"),
    ],
)
def test_what_is_not_clear_or_not_there(text: str, said: str) -> None:
    with pytest.raises(ServiceRefused, match=said):
        chosen(msgspec.convert(documents(), list[Query]), text, "here")
    with pytest.raises(ServiceRefused, match="it knows none"):
        chosen([], text, "here")


def test_an_unknown_query_is_one_line() -> None:
    with fake_service() as service:
        service.routes["GET /api/v1/queries"] = Reply({"queries": []})
        code, _, err = query("show", "nobody", PENSTOCK_URL=service.url)
        assert (code, "there is no query 'nobody'" in err) == (1, True)


def completions(words: str, **environment: str) -> list[str]:
    said = {"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    result = CliRunner().invoke(app, [], env={"PENSTOCK_URL": None, **said, **environment}, prog_name="penstock")
    assert result.stderr == ""
    return result.stdout.split()


def test_a_shell_completes_verbs_names_and_ids() -> None:
    with fake_service() as service:
        service.routes["GET /api/v1/queries"] = Reply({"queries": documents()[:5]})
        assert "rescale" in completions("penstock query re")
        url = {"PENSTOCK_URL": service.url}
        assert completions("penstock query show s", **url) == ["sums"]
        assert completions("penstock query show ", **url) == ["sums", "counts", "77770000-3", "99990000-5"]
        assert completions("penstock query rescale 5b0c1", **url) == ["5b0c1f2e-1"]
        assert completions(f"penstock query stop --url {service.url} su") == ["sums"]
        service.routes["GET /api/v1/queries"] = Reply(raw=b"rubbish")
        assert completions("penstock query show s", **url) == []
    assert completions("penstock query show s", **url) == []
    assert completions("penstock query show s") == []
    assert completions("penstock query show s", PENSTOCK_URL="rubbish") == []
