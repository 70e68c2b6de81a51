"""Command line of Penstock."""
