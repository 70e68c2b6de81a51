"""``docs/benchmarks.md``, its charts and the README's table, from the raw results in ``benchmarks/results/``."""
