"""``aggregate.json``, figures and receipts to one page for people, and to the manifest."""
