"""Campaigns of one launch each, sound and damaged: a hostile reader finds no number of unknown origin on their pages."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from claims import faults
from made_pages import page_of
from mutations import MUTATIONS

NAMES = [name for name, m in MUTATIONS.items() if "repeats" not in m.sections]


@pytest.mark.parametrize("name", NAMES)
def test_every_number_on_the_page_is_the_aggregates(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its interval and its kind; see ``tests/claims.py``."""
    # Nothing of it has to outlive a power cut, and waiting for the disk is half of the time.
    monkeypatch.setattr("os.fsync", lambda _: None)
    aggregate = MUTATIONS[name].made(tmp_path / "campaign")
    assert faults(page_of(aggregate), aggregate) == []
