"""Campaigns in every state: each has its page, every number is the aggregate's, and every code that occurs has words."""

from pathlib import Path

import pytest
from made_pages import text_of, view_of
from mutations import MUTATIONS
from page_reader import check_numbers

from connector_tax.read.figures.words import labels

# The others have their page in one of these.
OF_FIGURES = ("sound", "lost", "everything", "requests")


@pytest.mark.parametrize("state", [m for m in MUTATIONS if not m.startswith(OF_FIGURES)])
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
    assert bool(drift) or "host" not in state
    assert all(str(t.rows[0][0]).endswith("/s") for t in drift), "at which rate"
    if "burn" in state:
        assert words["source"]["virtual_gpu"] in page
