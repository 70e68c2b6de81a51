"""Aggregate functions over groups of rows, a file per family."""

from penstock.operators.accumulators.base import Accumulator
from penstock.operators.accumulators.families import create_accumulator

__all__ = ["Accumulator", "create_accumulator"]
