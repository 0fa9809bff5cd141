"""Names and forms of everything under ``results/``, shared by measurement and analysis."""
