"""Shared by all families: expression trees, vectors, null rules, time zones, errors and limits."""
