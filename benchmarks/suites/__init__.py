"""The benchmarks, one module each: ``run(spark, quick)`` measures and returns the raw results."""
