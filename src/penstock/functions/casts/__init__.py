"""Casts, and conversions between texts and numbers, dates and times."""
