"""Tables to claims: percentiles, taxes and verdicts, each with its interval."""
