"""One launch, its cells, one receipt: the only room that knows both engine and load generator."""
