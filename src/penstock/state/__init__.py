"""Keyed state tables and their backends."""
