"""The server under test: launch, identity, settings, stop, and proof that nothing is left."""
