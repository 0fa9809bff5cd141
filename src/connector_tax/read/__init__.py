"""Turns recorded facts into claims. Nothing here imports the running side; both meet in ``results/``."""
