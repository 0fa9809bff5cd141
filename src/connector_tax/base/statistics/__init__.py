"""Percentiles, resampling, intervals and what is made of them; no files, no campaigns."""
