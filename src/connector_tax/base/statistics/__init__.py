"""Percentiles, resampling, intervals and what is derived from them; no files, no campaigns."""
