"""The running wing: it makes facts. Nothing here imports the reading wing; the two meet in ``results/``."""
