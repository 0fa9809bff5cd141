"""What holds for every test of measuring."""

import pytest
from host_faults import LIMITS_ON_THE_CLIENT

from connector_tax.run.loadgen import health


@pytest.fixture(autouse=True)
def _no_limits_on_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others run beside these tests, and what is asked is what becomes of a cell, not how long the client was away."""
    for name in LIMITS_ON_THE_CLIENT:
        monkeypatch.setattr(health, name, 1e9)
