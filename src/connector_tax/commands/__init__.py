"""One module per command of ``connector-tax``: its arguments, and one function that does it."""
