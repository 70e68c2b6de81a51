"""``penstock demo``: the main job on real flights, with a kill in the middle and Spark as the judge."""
