"""``aggregate.json`` goes through its types unchanged, and what is not of its form is one message."""

import json
from pathlib import Path
from typing import Any

import pytest
from builders import ROOT, SMALL, Campaign, campaign_config
from invented_server import Behaviour

from connector_tax.base.documents.aggregate import (
    read_aggregate,
    written,
)
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import to_json
from connector_tax.read.analysis import analyse

EXAMPLE = ROOT / "tests" / "data" / "aggregate_example.json"


def example() -> dict[str, Any]:
    value: dict[str, Any] = json.loads(EXAMPLE.read_text())
    return value


def analysed(root: Path) -> Path:
    analyse(root, 1)
    return root / "aggregate.json"


def unchanged(path: Path) -> bool:
    found: bool = json.loads(to_json(written(read_aggregate(path)))) == json.loads(path.read_text())
    return found


def test_the_example_goes_through_unchanged() -> None:
    assert unchanged(EXAMPLE)


def test_a_campaign_of_blocks_goes_through_unchanged(tmp_path: Path) -> None:
    plain = Behaviour(noise=0.05)
    behaviours = {"plain": plain, "plain_again": plain, "mooncake_both": plain.taxed(0.3)}
    sections = {**SMALL, "connectors": ["plain", "mooncake_both"], "analysis": {"bootstrap_draws": 200}}
    found = Campaign(tmp_path, campaign_config(**sections, repeats=3), behaviours, max_steps=60)
    found.measure_everything()
    path = analysed(tmp_path)
    assert unchanged(path)
    assert read_aggregate(path).repeats


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("schema_version", 2, "schema 2, this version reads 1"),
        ("taxes", "none", "Expected `array`, got `str` - at `$.taxes`"),
        ("cells.0.n_ok", "many", "Expected `int`, got `str` - at `$.n_ok` (of `$.cells[0]`)"),
        ("cells.0.step.cdf", 3, "Expected `object`, got `int` - at `$.cdf` (of `$.cells[0]`)"),
        ("cells.0.health", {"device_clock": 1}, "at `$.health.device_clock` (of `$.cells[0]`)"),
        ("main_taxes.0.verdict", "no_tax", "Invalid enum value 'no_tax' - at `$.main_taxes[0].verdict`"),
    ],
)
def test_what_is_of_another_form_is_one_message(tmp_path: Path, place: str, value: Any, message: str) -> None:
    document = inner = example()
    *way, last = (int(k) if k.isdigit() else k for k in place.split("."))
    for name in way:
        inner = inner[name]
    inner[last] = value
    path = tmp_path / "aggregate.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ArtifactError) as caught:
        read_aggregate(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)
    assert "Make it again with connector-tax report." in str(caught.value)
