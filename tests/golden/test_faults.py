"""Old faults as inputs: of each input in ``faults.yaml`` the right record is found."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from . import campaign_adapters as product
from .campaigns import CONFIGS

FAULTS = yaml.safe_load(Path(__file__).with_name("faults.yaml").read_text(encoding="utf-8"))
GIVEN = {fault["fault"]: fault["given"] for fault in FAULTS if "given" in fault}


def record_of(given: dict[str, Any], folder: Path) -> Any:
    """What is made of an input: requests of a trace, contents of prompts, None of what is only checked."""
    source = folder / "given"
    if "trace" in given:
        source.write_text(given["trace"], encoding="utf-8", newline="")
        return product.requests_of_trace(source, folder / "made")
    if "prompts" in given:
        source.write_text(given["prompts"], encoding="utf-8", newline="")
        return product.contents_of_prompts(source, folder / "made")
    if "arguments" in given:
        return product.check_load([str(argument) for argument in given["arguments"]], folder)
    if "yaml" in given:
        source.write_text(given["yaml"], encoding="utf-8")
        return product.read_yaml(source)
    mapping = product.read_yaml(CONFIGS / "made.yaml")
    for name, change in given.get("campaign", {}).items():
        mapping[name] = {**mapping[name], **change} if isinstance(change, dict) else change
    if "connector" in given:
        known = product.read_yaml(CONFIGS / "connectors.yaml")
        source.write_text(yaml.safe_dump({**known, "mine": {"label": "mine", **given["connector"]}}))
        mapping |= {"connectors_file": str(source), "connectors": [*mapping["connectors"], "mine"]}
    return product.campaign_config(mapping)


@pytest.mark.parametrize("fault", GIVEN)
def test_the_record_is_right(fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = GIVEN[fault]
    if "refused" in given:
        with pytest.raises(product.ConfigError) as told:
            record_of(given, tmp_path)
        assert [part for part in given["refused"] if part not in str(told.value)] == [], told.value
        assert not (tmp_path / "made").exists()
        return
    found = record_of(given, tmp_path)
    if "requests" in given:
        assert [request[:2] for request in found] == [request[:2] for request in given["requests"]]
        assert [r[2] for r in found] == pytest.approx([r[2] for r in given["requests"]])
    else:
        assert found == given["found"]
    said = capsys.readouterr().err
    assert [part for part in given.get("said", []) if part not in said] == []
