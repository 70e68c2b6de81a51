"""Functions of arrays and maps, with and without lambdas."""
