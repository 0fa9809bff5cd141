"""A run's last three lines: where the report is, what it says, what to try next."""

import html
import json
import re
from pathlib import Path

import pytest
from whole_aggregate import Aggregate, example, over_blocks

from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.read.report.page import closing_lines, render
from connector_tax.read.report.view import page_view


@pytest.fixture
def aggregate() -> Aggregate:
    return example()


def lines(root: Path, aggregate: Aggregate) -> list[str]:
    (root / "aggregate.json").write_text(json.dumps(aggregate))
    return closing_lines(root).splitlines()


def test_they_say_what_the_pages_headline_says(aggregate: Aggregate, tmp_path: Path) -> None:
    aggregate["configs"]["mooncake_consumer"]["label"] = "a <name> & more"
    report, says, _ = lines(tmp_path, aggregate)
    assert report == f"report: {tmp_path / 'report.html'}"
    (headline,) = re.findall(
        "<h1>(.*?)</h1>",
        render(page_view(read_aggregate(tmp_path / "aggregate.json")), []),
        re.DOTALL,
    )
    answer = html.unescape(re.sub("<[^>]+>", "", headline)).replace("\u202f", " ")
    assert says == f"says:   GPU. {' '.join(answer.split())}" and "a <name> & more" in says


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("embedded_engine", "make demo-vllm"),
        ("virtual_gpu", "make gpu-smoke"),
        ("cpu", "make gpu-smoke"),
        ("gpu", "repeats: 3"),
    ],
)
def test_the_next_step_follows_from_what_was_measured_on(
    aggregate: Aggregate, tmp_path: Path, kind: str, wanted: str
) -> None:
    aggregate["source"] = {"kind": kind}
    assert lines(tmp_path, aggregate)[2].startswith(f"next:   {wanted}")


def test_a_campaign_over_blocks_on_a_gpu_can_be_handed_on(aggregate: Aggregate, tmp_path: Path) -> None:
    aggregate["repeats"] = [over_blocks(0.01, -0.02, 0.03, 4)]
    assert "connector-tax bundle " in lines(tmp_path, aggregate)[2]


def test_a_campaign_without_a_number_leads_to_the_reasons(aggregate: Aggregate, tmp_path: Path) -> None:
    for tax in (*aggregate["main_taxes"], *aggregate["taxes"]):
        tax |= {"point": None, "low": None, "high": None, "available": False, "reason": "x"}
    _, says, following = lines(tmp_path, aggregate)
    assert says.startswith("says:   GPU. No tax can be stated.")
    assert following.startswith("next:   connector-tax status")
