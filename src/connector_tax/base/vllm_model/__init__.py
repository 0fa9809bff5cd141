"""A discrete-event model of vLLM's scheduler with costs that we set: no clock, no socket."""
