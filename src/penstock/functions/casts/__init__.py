"""Casts, and texts of numbers, dates and times."""
