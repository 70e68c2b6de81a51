"""Expressions over Arrow batches, equal to Catalyst's bit for bit."""

from penstock.operators.expressions.base import BoundReference, Expression, Literal, Mask
from penstock.operators.expressions.conf import SessionConf

__all__ = ["BoundReference", "Expression", "Literal", "Mask", "SessionConf"]
