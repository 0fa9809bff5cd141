"""Turns tables into percentiles, taxes and verdicts, each with its interval."""
