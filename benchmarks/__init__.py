"""Speed and recovery, as ratios against a reference in the same run. ``python -m benchmarks --help``."""
