"""Compares two campaigns, tax by tax."""
