"""What the load generator is worth on this host: ``python -m connector_tax.run.selftest``."""
