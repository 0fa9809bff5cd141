"""Shared foundations: files, clocks, records, config, plan, statistics and a model of vLLM."""
