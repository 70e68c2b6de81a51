"""Simulated processes: the driver, the slots of a generation, the links between them and snapshot commands."""
