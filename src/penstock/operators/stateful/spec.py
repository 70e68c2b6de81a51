"""Specification of a transformWithState operator: its declaration, and the creation of the operator."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.operators.base import Operator
from penstock.operators.stateful.arrow_operator import ArrowStateOperator
from penstock.operators.stateful.declaration import RowForm, StatefulDeclaration
from penstock.operators.stateful.operator import TransformWithStateOperator


@dataclass(frozen=True)
class TransformWithStateSpec(StatefulDeclaration):
    def create(self) -> Operator:
        if self.form is RowForm.ARROW:
            return ArrowStateOperator(self)
        return TransformWithStateOperator(self)
