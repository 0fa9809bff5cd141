"""The server under test: launch, identity, patch, stop, and the proof that it is gone."""
