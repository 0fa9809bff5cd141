"""The load generator as a tool of its own, against any OpenAI-compatible server: ``connector-tax load``."""
