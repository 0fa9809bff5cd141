"""A connector's cost on a clock that counts the engine thread's CPU time: the device and idle waits are jumps."""
