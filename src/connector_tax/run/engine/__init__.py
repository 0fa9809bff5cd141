"""The server under test: launch, identity, step timing, stop, and the proof that it is gone."""
