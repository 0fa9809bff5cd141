"""Campaigns in every state: each has its page, every number is the aggregate's, and every code that occurs has words."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from made_pages import text_of, view_of
from mutations import MUTATIONS
from page_reader import check_numbers

from connector_tax.read.figures.words import labels

STATES = (
    "sound over blocks",
    "lost cell of plain",
    "lost block of plain's second launch",
    "every block of a connector lost",
    "no plain",
    "nothing but plain",
    "nothing at all",
    "skipped subject",
    "failed run",
    "gains over blocks",
    "no taxes over blocks",
    "noise over blocks",
    "one connector is noisy",
    "huge taxes",
    "tiny taxes",
    "one-sided intervals over blocks",
    "requests of plain's block failed",
    "p90 unavailable",
    "few requests",
    "poisson arrivals",
    "saturated everywhere",
    "one connector saturated over blocks",
    "one reference rate",
    "no step timing",
    "hooks unheard",
    "observer",
    "host tells",
    "levels",
    "conversations",
    "matched baseline",
    "answers",
    "virtual GPU",
    "test connectors that burn",
    "embedded engine",
    "connector that fakes hits",
)


@pytest.mark.parametrize("state", STATES)
def test_a_page_of_any_state_has_the_aggregates_numbers_and_words_for_its_codes(
    state: str, tmp_path: Path
) -> None:
    aggregate = MUTATIONS[state].made(tmp_path / "campaign")
    page = text_of(aggregate)
    check_numbers(aggregate, page)
    words = labels()
    for row in aggregate["connectors"]:
        assert f"<span>{words['verdict'][row['verdict']]}</span>" in page
        assert row["reason"] is None or row["reason"]["code"] in words["reason"]
        assert set(row["marks"]) <= set(words["mark"])
    flags = {flag for cell in aggregate["cells"] for flag in cell["flags"]}
    assert flags <= set(words["flag"])
    drift = [t for t in view_of(aggregate).tables["load"] if t.code == "host_drift"]
    assert bool(drift) or state != "host tells"
    assert all(str(t.rows[0][0]).endswith("/s") for t in drift), "at which rate"
    if "virtual" in state or "burn" in state:
        assert words["source"]["virtual_gpu"] in page
