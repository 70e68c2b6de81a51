"""The kit itself: a backend that keeps the contract passes, and each way to break it is found."""

from __future__ import annotations

from functools import partial

import pytest

from penstock.testing.failure import SimulationFailure
from penstock.testing.table_kit import CHECKS, check_backend, run_check
from tests.support.state.dict_table import FLAWS, DictBackend

pytestmark = pytest.mark.slow

CHECK = {check.name: check for check in CHECKS}


@pytest.mark.usefixtures("some_shapes")
def test_a_backend_that_keeps_the_contract_passes() -> None:
    check_backend(DictBackend)


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_backend_that_breaks_it_is_found(flaw: str) -> None:
    check = CHECK[FLAWS[flaw]]
    with pytest.raises(SimulationFailure) as failure:
        run_check(check, partial(DictBackend, flaw))
    assert failure.value.oracle == check.name
    assert check.meaning in str(failure.value)


def test_a_backend_whose_stored_content_another_one_misreads_is_found() -> None:
    check = CHECK["loading bases and deltas"]
    run_check(check, DictBackend)
    with pytest.raises(SimulationFailure, match="loading"):
        run_check(check, DictBackend, partial(DictBackend, "loading forgets the deltas"))
