"""Conformance kits for authors of operators, sources, sinks and state backends."""
