"""The table of taxes in Markdown: the page's rows, with their source, marks and reasons; and the part of a page that it fills."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from whole_aggregate import Aggregate, example

from connector_tax.base.documents.aggregate import aggregate_of
from connector_tax.cli import command
from connector_tax.read.figures.words import label
from connector_tax.read.report.page import taxes_markdown
from connector_tax.read.report.view import page_view


@pytest.fixture
def aggregate() -> Aggregate:
    return example()


def table(aggregate: Aggregate) -> str:
    return taxes_markdown(page_view(aggregate_of(aggregate)))


def rows(text: str) -> dict[str, list[str]]:
    """Connector -> its other cells."""
    found = [line.strip("|").strip().split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {re.sub(r" \([a-o ]+\)$", "", cells[0]): cells[1:] for cells in found[1:]}


def of_ttft(aggregate: Aggregate, config: str) -> dict[str, Any]:
    own = (config, "ttft_p90", "ref_safe")
    return next(t for t in aggregate["main_taxes"] if (t["config"], t["metric"], t["reference"]) == own)


def test_every_connector_has_a_row_and_the_source_stands_above(aggregate: Aggregate) -> None:
    of_ttft(aggregate, "nixl_both").update(point=0.42, low=0.31, high=0.55)
    text = table(aggregate)
    assert text.startswith(
        "Source: GPU, NVIDIA H20. Change against plain vLLM at 2 requests/s of 4,096 prompt"
    )
    assert text.splitlines()[0].endswith("95 % intervals of one launch each.") and text.count("launch") == 1
    found = rows(text)
    assert len(found) == len(aggregate["configs"]) - 1
    assert found["NIXL (both)"][0] == "+42 % [+31, +55]" and found["NIXL (both)"][-1].startswith("yes")


def test_what_plain_lacks_is_not_laid_to_the_connector(aggregate: Aggregate) -> None:
    words = "about plain vLLM: Its cell at this load was not usable."
    for subject in ("plain", "nixl_both"):
        reason = {"code": "cell_left_out", "subject": subject}
        row = {"config": "nixl_both", "verdict": "failed", "clear": [], "reason": reason, "marks": []}
        aggregate["connectors"] = [row]
        assert (words in table(aggregate)) == (subject == "plain")


def test_over_blocks_it_says_so(aggregate: Aggregate) -> None:
    for tax in aggregate["main_taxes"]:
        tax |= {"phase": None, "n_blocks": 4}
    of_ttft(aggregate, "nixl_both").update(n_blocks=3)
    text = table(aggregate)
    assert "over up to 4 blocks of launches." in text.splitlines()[0]
    assert "\n(a) " in text and "| NIXL (both) (" in text


def test_what_is_not_known_is_a_dash_with_its_reason_below(aggregate: Aggregate) -> None:
    own = {"point": None, "low": None, "high": None, "reason": "few_observations"}
    of_ttft(aggregate, "nixl_both").update(own)
    text = table(aggregate)
    assert rows(text)["NIXL (both)"][0] == "–"
    assert f"NIXL (both): {label('reason', 'no_number')}" in text.rpartition("|")[2]


def test_a_name_cannot_end_its_cell(aggregate: Aggregate) -> None:
    aggregate["configs"]["noop_connector"]["label"] = "a | b"
    assert "| a \\| b |" in table(aggregate)


def test_report_prints_it_and_writes_nothing(
    aggregate: Aggregate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "aggregate.json").write_text(json.dumps(aggregate))
    assert command("report").call([str(tmp_path), "--markdown"]) == 0
    assert capsys.readouterr().out == table(aggregate) + "\n"
    assert [p.name for p in tmp_path.iterdir()] == ["aggregate.json"]
