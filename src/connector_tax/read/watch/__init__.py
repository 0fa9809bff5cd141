"""A campaign as it runs, on a page of this host: how far it is, and the report of what is measured so far."""
