"""Kafka, read by the slots."""
