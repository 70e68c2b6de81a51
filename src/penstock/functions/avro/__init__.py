"""Avro functions."""
