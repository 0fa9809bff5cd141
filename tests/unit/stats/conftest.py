"""One measured campaign for all tests of a whole analysis, and a copy of it to be damaged."""

from pathlib import Path
from typing import Any

import pytest
from analysed import analysed, campaign_of, copy_of
from builders import Campaign


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """Tests change nothing in it."""
    campaign = campaign_of(tmp_path_factory.mktemp("whole") / "demo", campaign="demo")
    campaign.measure_everything()
    return campaign


@pytest.fixture(scope="session")
def value(whole: Campaign) -> dict[str, Any]:
    """``aggregate.json`` of it."""
    return analysed(whole)


@pytest.fixture
def copied(whole: Campaign, tmp_path: Path) -> Campaign:
    return copy_of(whole, tmp_path / "demo")
