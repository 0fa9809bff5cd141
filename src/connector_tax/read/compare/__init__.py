"""Two campaigns, tax by tax."""
