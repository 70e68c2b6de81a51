"""Aggregate functions over groups of rows, one file per family."""

from penstock.operators.aggregate.accumulators.base import Accumulator
from penstock.operators.aggregate.accumulators.families import create_accumulator

__all__ = ["Accumulator", "create_accumulator"]
