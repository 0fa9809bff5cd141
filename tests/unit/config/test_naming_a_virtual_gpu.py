"""A campaign that names a virtual GPU: what it must say, what it may change, and whose hash that touches."""

import json
from pathlib import Path

import msgspec
import pytest
import yaml
from builders import ROOT
from msgspec.structs import replace
from virtual_gpus import clocked_campaign

from connector_tax.base.config import load_campaign
from connector_tax.base.config.gpu import GPUS
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import document_of, to_json
from connector_tax.base.plan import campaign_document, cells_of, config_of, launch_spec, spec_hash
from connector_tax.base.records.connector import LaunchSpec
from connector_tax.base.records.host import HostCosts, StepCosts

STEP = {"base_us": 4000, "per_prefill_token_us": 15, "per_decode_seq_us": 20, "per_context_token_us": 0.02}


def test_the_campaigns_own_numbers_go_before_the_profiles() -> None:
    given = {
        "step": STEP,
        "kv_cache_bytes": 7,
        "host": {"after_launch_us": 80},
        "operating_point": {"decode_seqs": 4},
    }
    named = clocked_campaign("m").engine.virtual_gpu
    assert named is not None
    assert (named.profile, named.name, named.compute_capability) == ("h200", "NVIDIA H200", (9, 0))
    assert (named.memory_bytes, named.step, named.host) == (150754820096, None, HostCosts())
    gpu = clocked_campaign("m", given).engine.virtual_gpu
    assert gpu is not None
    assert gpu.step == StepCosts(4000.0, 15.0, 20.0, 0.02)
    assert (gpu.kv_cache_bytes, gpu.host) == (7, HostCosts(0.0, 0.0, 80.0))
    assert (gpu.operating_point.decode_seqs, gpu.operating_point.prefill_tokens) == (4, 4096)


def test_a_profile_may_be_a_file_of_ones_own(tmp_path: Path) -> None:
    """A fitted one holds its step time."""
    own = {**yaml.safe_load((GPUS / "h200.yaml").read_text()), "name": "Mine", "step": STEP}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(own))
    gpu = clocked_campaign("m", {"gpu": str(path)}).engine.virtual_gpu
    assert gpu is not None
    assert (gpu.profile, gpu.name, gpu.step) == ("mine", "Mine", StepCosts(4000.0, 15.0, 20.0, 0.02))


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"virtual_gpu": None}, "engine.virtual_gpu: missing, but engine.kind is virtual_gpu"),
        ({"kind": "vllm"}, "engine.virtual_gpu: given, but engine.kind is vllm"),
        ({"virtual_gpu": {"gpu": "h300"}}, "'h300': no such profile. Known: a100, h100, h20, h200, l40s"),
        ({"virtual_gpu": {"gpu": "h200", "speed": 2}}, "engine.virtual_gpu: unknown key 'speed'"),
        (
            {"virtual_gpu": {"gpu": "h200", "host": {"after_launch_us": -1}}},
            "engine.virtual_gpu.host: after_launch_us: -1.0 is not allowed",
        ),
        ({"python": None}, "engine.kind is virtual_gpu. Give the interpreter"),
    ],
)
def test_what_is_missing_or_too_much_is_one_message(engine: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        clocked_campaign("m", **engine)
    assert words in str(caught.value)


def test_a_profile_of_another_form_names_its_file(tmp_path: Path) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text("name: Odd\n")
    with pytest.raises(ConfigError, match=r"odd\.yaml: missing"):
        clocked_campaign("m", {"gpu": str(path)})


@pytest.mark.parametrize(("name", "cell"), [("config", "6a8a41bb20fc4422"), ("demo", "5636b318a77a3076")])
def test_campaigns_without_one_keep_the_hashes_they_had(
    name: str, cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or every cell that was measured before there were virtual GPUs would be measured again."""
    monkeypatch.delenv("ENGINE_PYTHON", raising=False)
    shipped = load_campaign(ROOT / "config" / f"{name}.yaml")
    shipped = replace(
        shipped, engine=replace(shipped.engine, model_sha256=None)
    )  # as of versions that did not look into it
    assert spec_hash(shipped, "plain", cells_of(shipped, "plain", "a")[0]) == cell


def test_another_gpu_is_another_measurement() -> None:
    """So is another host, and the same numbers written otherwise are the same."""
    first = clocked_campaign("m")
    cell = cells_of(first, "plain", "a")[0]
    h100 = clocked_campaign("m", {"gpu": "h100"})
    busy = clocked_campaign("m", {"host": {"before_launch_us": 470}})
    hashes = {spec_hash(c, "plain", cell) for c in (first, h100, busy)}
    assert len(hashes) == 3
    whole, point = ({**STEP, "base_us": base} for base in (4000, 4000.0))
    assert spec_hash(clocked_campaign("m", {"step": whole}), "plain", cell) == spec_hash(
        clocked_campaign("m", {"step": point}), "plain", cell
    )


def test_a_campaign_file_gives_the_same_gpu_back() -> None:
    """Through JSON, which has no tuples: a cell's launch is held against the campaign's."""
    config = clocked_campaign("m", {"step": STEP})
    text = to_json(campaign_document(config, date="2026-01-01", created_utc="x"))
    assert config_of(document_of(json.loads(text), CampaignDocument, "campaign.json")) == config
    launch = launch_spec(config, "plain")
    assert msgspec.json.decode(msgspec.json.encode(launch), type=LaunchSpec) == launch
