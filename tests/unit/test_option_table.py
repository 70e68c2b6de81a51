"""README's table of options has every option, and each default in it can be written as the option's value."""

from __future__ import annotations

import re

import pytest

from penstock.config import OPTION_NAMES, Options, option_texts, parse_options
from tests.support.places import ROOT

README = ROOT / "README.md"
WITHOUT_WORD = {"parallelism", "sinkTarget"}
"""Options whose default is found at start or is no value, so that no word stands for it."""


def table() -> dict[str, str]:
    section = README.read_text().partition("\n## Options\n")[2].partition("\n## ")[0]
    defaults = {}
    for names_cell, default_cell in re.findall(r"^\| (`.*?`) \| (.*?) ?\| ", section, re.MULTILINE):
        names = re.findall(r"`([^`]+)`", names_cell)
        texts = [text.strip("` ") for text in default_cell.split(",")]
        defaults |= zip(
            names, texts if len(texts) == len(names) else [default_cell.strip("` ")] * len(names), strict=True
        )
    return {name: text for name, text in defaults.items() if not name.startswith("rest.")}


def test_the_table_has_every_option() -> None:
    assert sorted(table()) == list(OPTION_NAMES)


@pytest.mark.parametrize("name", [name for name in OPTION_NAMES if name not in WITHOUT_WORD])
def test_the_default_is_a_value_of_the_option(name: str) -> None:
    assert parse_options({name: table()[name]}) == Options()


@pytest.mark.parametrize("name", ["checkpoint.maxInflightBytes", "exchange.inflightTarget", "sink.retryTimeout"])
def test_off_undoes_a_value(name: str) -> None:
    assert parse_options({name: " OFF "}) == Options() != parse_options({name: "5"})
    assert option_texts(Options())[name] == "off"
