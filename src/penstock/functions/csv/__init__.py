"""CSV functions."""
