"""The only room that knows both engine and load generator: one launch, its cells, one receipt."""
