"""``json_tuple`` gives what Catalyst's generator gives, document by document."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
import pytest

from penstock.catalyst.trees import elements, expr_id, kind, preorder
from penstock.errors import NotSupported
from penstock.functions import Expression, SessionConf
from penstock.functions.plan import translate
from penstock.planner.generate import generated_elements
from penstock.planner.scope import Scope

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tests.support.functions.expression_oracle import Relation

pytestmark = pytest.mark.spark


def compiled(edges: Relation, frame: DataFrame) -> Expression:
    """The arrays that the generator of a DataFrame over the relation is run as."""
    plan = frame._jdf.queryExecution().optimizedPlan()
    [node] = [node for node in preorder(plan) if kind(node) == "Generate"]
    names = {str(a.name()): i for i, a in enumerate(elements(edges.frame._jdf.queryExecution().analyzed().output()))}
    ordinals = {expr_id(a): names[str(a.name())] for a in elements(node.child().output())}
    scope = SimpleNamespace(translate=lambda tree: translate(tree, ordinals, SessionConf()))
    found = generated_elements(cast(Scope, scope), node.generator(), elements(node.generatorOutput()))
    return cast(Expression, cloudpickle.loads(cloudpickle.dumps(found)))


@pytest.mark.parametrize("names", ["'a','b'", "'b','a','a','zz',cast(null as string)", "'a b','','s','x','n','t'"])
def test_fields_equal_spark(relation: Callable[[str], Relation], names: str) -> None:
    edges = relation("json taken apart")
    frame = edges.frame.selectExpr("id", f"json_tuple(s, {names})")
    expected = {row[0]: tuple(row[1:]) for row in frame.collect()}
    ours = compiled(edges, frame).evaluate(edges.batch).to_pylist()
    found = {
        number: tuple(rows[0].values()) for number, rows in zip(edges.batch.column(0).to_pylist(), ours, strict=True)
    }
    assert found == expected
    assert sum(any(row) for row in expected.values()) > 3


def test_names_have_to_be_constants(relation: Callable[[str], Relation]) -> None:
    edges: Any = relation("json taken apart")
    with pytest.raises(NotSupported, match=r"json_tuple.*names must be constants; use get_json_object"):
        compiled(edges, edges.frame.selectExpr("json_tuple(s, 'a', s)"))
