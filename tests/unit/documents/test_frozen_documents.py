"""Documents that an earlier version wrote are read, and written again as they were; what is none of them is refused in one sentence."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.documents.cell import OutputsFile, RunConfig, SummaryFile, cell_of
from connector_tax.base.documents.identity import EngineSettings, GpuFile, engine_diff_of
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.documents.receipt import Decision, Launches, PreflightStatus, receipt_of
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import document_of, read_json, to_json
from connector_tax.base.plan import cells_of, config_of, spec_hash
from connector_tax.base.records.rates import ReferenceRates

ROOT = Path(__file__).parents[3]
FROZEN = ROOT / "tests" / "data" / "documents"


def of(kind: Any) -> Callable[[Any, str], Any]:
    return lambda value, where: document_of(value, kind, where)


READERS: dict[str, Callable[[Any, str], Any]] = {
    "accuracy.json": of(OutputsFile),
    "campaign.json": of(CampaignDocument),
    "cell.json": cell_of,
    "cell_more.json": cell_of,  # what cells of other phases have beside
    "config.json": of(RunConfig),
    "decision.json": of(Decision),
    "engine_diff.json": engine_diff_of,
    "engine_settings.json": of(EngineSettings),
    "launches.json": of(Launches),
    "preflight_status.json": of(PreflightStatus),
    "receipt.json": receipt_of,
    "reference_rates.json": of(ReferenceRatesFile),
    "summary.json": of(SummaryFile),
    "virtual_gpu.json": of(GpuFile),
}


def test_each_document_has_a_frozen_one() -> None:
    assert {p.name for p in FROZEN.iterdir()} == set(READERS)


@pytest.mark.parametrize("name", READERS)
def test_a_frozen_document_is_written_again_as_it_was(name: str) -> None:
    value = read_json(FROZEN / name)
    assert json.loads(to_json(READERS[name](deepcopy(value), name))) == value


@pytest.mark.parametrize("name", READERS)
def test_so_is_every_one_of_the_published_campaign(name: str, published_campaign: Path) -> None:
    """It was measured by an earlier version, whose cells lack some of the client's figures."""
    found = sorted(published_campaign.rglob(name.replace("_more", "")))
    for path in found:
        value = read_json(path)
        assert json.loads(to_json(READERS[name](value, str(path)))) == value, path
    assert (
        len(found) == {"cell.json": 151, "cell_more.json": 151, "receipt.json": 44}.get(name, len(found)) > 0
    )


def test_a_frozen_cell_is_used_again_under_the_hash_of_its_campaign() -> None:
    """Another hash would throw what was measured away."""
    config = config_of(document_of(read_json(FROZEN / "campaign.json"), CampaignDocument, "campaign.json"))
    cell = cell_of(read_json(FROZEN / "cell.json"), "cell.json")
    (planned,) = [c for c in cells_of(config, cell.connector, "a") if c.cell_id == cell.cell_id]
    assert spec_hash(config, cell.connector, planned) == cell.spec_hash


def test_every_published_cell_has_the_hash_of_the_published_campaign(published_campaign: Path) -> None:
    """All but its paths, which were written for everybody's home."""
    config = config_of(
        document_of(read_json(published_campaign / "campaign.json"), CampaignDocument, "campaign.json")
    )
    rates = document_of(read_json(published_campaign / "reference_rates.json"), ReferenceRatesFile, "").rates
    cell = cell_of(
        read_json(next(published_campaign.glob("*_plain/phase_a/cells/r7_*/cell.json"))), "cell.json"
    )
    assert isinstance(rates, ReferenceRates)
    (planned,) = [c for c in cells_of(config, "plain", "a") if c.cell_id == cell.cell_id]
    assert planned == cell.spec


@pytest.mark.parametrize("name", [n for n in READERS if "schema" in read_json(FROZEN / n)])
def test_an_unknown_version_is_one_sentence(name: str) -> None:
    value = {**read_json(FROZEN / name), "schema": 2}
    with pytest.raises(ArtifactError) as caught:
        READERS[name](value, f"results/demo/{name}")
    assert str(caught.value).startswith(
        f"results/demo/{name}: schema 2, and this version of connector-tax reads 1. Use the version that wrote it."
    )


def _put(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    value = deepcopy(value)
    inner = value
    for key in way[:-1]:
        inner = inner[key]
    if new is None:
        del inner[way[-1]]
    else:
        inner[way[-1]] = new
    return value


@pytest.mark.parametrize(
    ("name", "way", "new", "said"),
    [
        ("cell.json", ("window", "t0_ns"), 2**62 + 1, "Expected `int` <= 4611686018427387904 - at `$.window.t0_ns`"),
        ("cell.json", ("verdict",), "splendid", "Invalid enum value 'splendid' - at `$.verdict`"),
        ("cell.json", ("files",), None, "Object missing required field `files`"),
        ("cell.json", ("spec", "warp"), 9, "spec.warp: this version knows no such parameter of a load"),
        ("launches.json", ("launches", 0, "elapsed_s"), "7", "Expected `float | null`, got `str` - at `$.launches[0].elapsed_s`"),
        ("preflight_status.json", ("configs", "plain", "prompt_s"), {"many": 1.0}, "regex '^[0-9]{1,10}$' - at `key` in `$.configs[...].prompt_s`"),
        ("reference_rates.json", ("ref_safe_per_s",), 0, "Expected `float` >= 1e-13 - at `$.ref_safe_per_s`"),
        ("engine_diff.json", ("plain", "cache_config.block_size"), "16", "plain.cache_config.block_size: no number of tokens"),
        ("campaign.json", ("date",), "../..", " - at `$.date`"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_its_place(
    name: str, way: tuple[Any, ...], new: Any, said: str
) -> None:
    with pytest.raises(ArtifactError, match=re.escape(said)):
        READERS[name](_put(read_json(FROZEN / name), way, new), name)


@pytest.mark.parametrize(
    ("way", "new", "said"),
    [
        (("engine", "port"), "8000", "Expected `int`, got `str` - at `$.config.engine.port`"),
        (("cell", "warp"), 9, "Object contains unknown field `warp` - at `$.config.cell`"),
        (("phase_a_shape",), None, "Object missing required field `phase_a_shape`"),
    ],
)  # fmt: skip
def test_a_config_of_another_version_is_told_from_this_ones(
    way: tuple[Any, ...], new: Any, said: str
) -> None:
    document = document_of(
        _put(read_json(FROZEN / "campaign.json"), ("config", *way), new), CampaignDocument, "campaign.json"
    )
    with pytest.raises(ArtifactError, match=re.escape(said)):
        config_of(document)


def test_what_an_earlier_version_did_not_write_has_its_default() -> None:
    value = _put(read_json(FROZEN / "campaign.json"), ("config", "engine", "port"), None)
    assert config_of(document_of(value, CampaignDocument, "campaign.json")).engine.port == 0
    value = _put(value, ("config", "engine", "args", "max_num_seqs"), "many")
    with pytest.raises(ArtifactError, match="'many' is no number of tokens"):
        config_of(document_of(value, CampaignDocument, "campaign.json"))
