"""``penstock demo``: runs the main job on real flights, kills a worker, and compares the result with Spark's."""
