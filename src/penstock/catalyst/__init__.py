"""Catalyst trees and types as plain values, read over py4j."""
