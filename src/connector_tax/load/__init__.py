"""The load generator as a tool for any OpenAI-compatible server: ``connector-tax load``."""
