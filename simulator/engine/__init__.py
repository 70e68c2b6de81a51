"""Repeatable runs: virtual time, seeded choices, the scheduler and an object store in memory."""
