"""The reading wing: it turns facts into claims. Nothing here imports the running wing; the two meet in
``results/``."""
