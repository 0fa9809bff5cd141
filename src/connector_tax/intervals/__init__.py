"""How far a number may be off: block resamples, tails, and intervals that may be looked at more than once."""
