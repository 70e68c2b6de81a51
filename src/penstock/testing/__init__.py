"""Shipped test tools: the deterministic simulator, with its faults and mutants."""
