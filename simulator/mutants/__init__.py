"""Small patches that break the code on purpose. The simulator must kill each of them."""
