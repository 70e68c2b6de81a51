"""Hashes and checksums."""
