"""Speed and recovery, as ratios against a reference in the same run. ``python -m benchmarks --help``."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
"""Root directory of the checkout."""
