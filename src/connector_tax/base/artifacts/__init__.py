"""Names and forms of everything under ``results/``: where the running and the reading wing meet."""
