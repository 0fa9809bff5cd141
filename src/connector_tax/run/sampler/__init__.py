"""The engine's metrics and the host's state, once a second, beside the cells of a launch."""
