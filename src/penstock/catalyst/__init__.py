"""Catalyst trees and types, read over py4j and converted to plain values."""
