"""Apache Flink as a peer: a stand-alone session cluster on loopback, and a job whose checkpoints are looked at.

``make flink`` installs what it needs. Nothing here imports Spark or Penstock.
"""
