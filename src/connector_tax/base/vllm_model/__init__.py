"""A discrete-event model of vLLM's scheduler with costs we set: no clock, no socket."""
