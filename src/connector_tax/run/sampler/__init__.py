"""The engine's metrics and the host's state, once a second during a launch's cells."""
