"""Deterministic simulator of whole queries: real protocol code in virtual time, under seeded faults."""
