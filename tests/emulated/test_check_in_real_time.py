"""``connector-tax check --real-time``: its campaign of three lines, on the embedded engine."""

from pathlib import Path

import pytest
import yaml

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import parse_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document
from connector_tax.check.campaign import AGAIN, measure_real_time

pytestmark = pytest.mark.emulated


def test_a_campaign_of_three_lines_has_taxes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host may lose a cell, and then says which."""
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    known = yaml.safe_load((PROJECT_ROOT / "config" / "connectors.yaml").read_text())
    entries = {"plain": known["plain"], "noop_connector": known["noop_connector"], AGAIN: known["plain"]}
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump(entries))
    value = yaml.safe_load((PROJECT_ROOT / "config" / "demo.yaml").read_text())
    value |= {"campaign": "real-time", "connectors_file": str(tmp_path / "connectors.yaml")}
    value |= {"connectors": list(entries), "phase_b_prime": {}, "accuracy": {"prompts": 0}}
    value["phase_a"]["rates_per_s"] = [20]
    config = parse_campaign(value, "check")
    folder = CampaignFolder(tmp_path / "real-time")
    document = campaign_document(config, date="2026-01-01", created_utc="2026-01-01T00:00:00Z")
    write_json(folder.campaign_file, document)
    found = measure_real_time(folder, config, "noop_connector", print)
    assert found.failure is None
    if not found.lost:
        taxes = {(t.config, t.metric) for t in found.taxes}
        assert taxes == {(c, m) for c in ("noop_connector", AGAIN) for m in ("ttft_p90", "tpot_p90")}
