"""Peers that Penstock is compared with: Apache Flink, Spark's own engine, and an exchange without an engine."""
