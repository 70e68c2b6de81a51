"""Penstock runs a PySpark streaming DataFrame as a continuous dataflow, with snapshots that never wait."""
