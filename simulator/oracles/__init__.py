"""Checks that watch a run and raise ``SimulationFailure``."""
