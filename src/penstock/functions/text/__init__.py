"""Functions of strings and binaries."""
