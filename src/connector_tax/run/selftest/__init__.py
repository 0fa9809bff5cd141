"""The load generator's accuracy on this host: ``python -m connector_tax.run.selftest``."""
