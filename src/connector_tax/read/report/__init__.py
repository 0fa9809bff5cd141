"""Turns ``aggregate.json``, figures and receipts into the report page and the manifest."""
