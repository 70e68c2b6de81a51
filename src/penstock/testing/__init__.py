"""Shipped test tools: the deterministic simulator, fault injection, operator harness."""
