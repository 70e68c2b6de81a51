"""Arithmetic, rounding, bits, and functions of doubles."""
