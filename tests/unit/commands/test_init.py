"""``connector-tax init`` writes a config that fits the card and the hours, or says what is missing; no engine is started."""

import dataclasses
import re
import sys
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import load_campaign
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import read_json
from connector_tax.base.plan.cells import launch_hash
from connector_tax.base.plan.named import find_campaign
from connector_tax.base.vllm_model.shape import model_shape
from connector_tax.check import request as checks
from connector_tax.check.document import Fault
from connector_tax.check.request import MODELS
from connector_tax.cli import command
from connector_tax.commands import init as command_init
from connector_tax.init import ADDED, LADDER, Wanted, card_of, costs_of, known_connectors, plans, shape_of
from connector_tax.outlook import outlook
from connector_tax.read.report.status import seconds_left
from connector_tax.run.engine.gpus import Gpu
from connector_tax.run.rehearsal.campaign import rehearse

H100 = Gpu(1, "GPU-1", "NVIDIA H100 80GB HBM3", 81_559, "GPU-1")
TEST_CONNECTORS = ("burning_0", "burning_200", "burning_1000", "decode_bench", "multi_noop_example")
COMBINATIONS = [
    ("nixl_both", "Qwen/Qwen3-8B", "h100", 1.0),
    ("nixl_both,mooncake_both", "Qwen/Qwen3-8B", "h100", 2.0),
    ("lmcache_only", "mistralai/Mistral-7B-Instruct-v0.3", "a100", 1.5),
    ("mooncake_both,lmcache_only,multi_mooncake_lmcache", "Qwen/Qwen3-30B-A3B", "h20", 4.0),
    ("nixl_both", "Qwen/Qwen3-0.6B", "h200", 1.0),
    (
        "mooncake_producer,mooncake_consumer,mooncake_both,nixl_both,lmcache_only,multi_mooncake_lmcache",
        "Qwen3-Coder-30B-A3B-Instruct",
        "h200",
        8.0,
    ),
]
# Billions, by the cards of the models on the hub.
PARAMETERS = {
    "Llama-3.1-8B-Instruct": 8.03,
    "Llama-3.3-70B-Instruct": 70.6,
    "Mistral-7B-Instruct-v0.3": 7.25,
    "Mixtral-8x7B-Instruct-v0.1": 46.7,
    "Qwen2.5-7B-Instruct": 7.61,
    "Qwen3-0.6B": 0.596,
    "Qwen3-14B": 14.8,
    "Qwen3-30B-A3B": 30.5,
    "Qwen3-32B": 32.8,
    "Qwen3-4B": 4.02,
    "Qwen3-8B": 8.19,
    "Qwen3-Coder-30B-A3B-Instruct": 30.5,
}


def wanted(connectors: str, model: str, gpu: str, hours: float) -> Wanted:
    return Wanted("tried", tuple(connectors.split(",")), model, shape_of(model, None), gpu, hours)


def call(*arguments: str) -> int:
    return command("init").call(["--connectors", "nixl_both", "--model", "Qwen/Qwen3-8B", *arguments])


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One without a GPU, and nobody has said where vLLM is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ENGINE_PYTHON", raising=False)
    monkeypatch.setattr(command_init, "host_gpus", lambda: ((), "this host has no NVIDIA driver"))


@pytest.mark.parametrize(("connectors", "model", "gpu", "hours"), COMBINATIONS)
def test_the_first_plan_is_a_campaign_of_twenty_lines_that_fits(
    tmp_path: Path, connectors: str, model: str, gpu: str, hours: float
) -> None:
    asked = wanted(connectors, model, gpu, hours)
    costs = costs_of(asked, tmp_path)
    text, config = next(plans(asked, costs))
    assert len(text.splitlines()) <= 23 and yaml.safe_load(text)["analysis"]["time_budget_h"] == hours
    assert config.connector_ids == (*ADDED, *connectors.split(","))
    assert 0.5 * hours < seconds_left(config, CampaignFolder(tmp_path / "none")) / 3600 <= hours
    lowest, *others = config.phase_a_rates_per_s
    assert others == [lowest * 2**k for k in range(1, len(others) + 1)]
    assert config.engine.costs == costs
    moved = replace(config, engine=replace(config.engine, costs=None))
    assert launch_hash(moved, "plain") == launch_hash(config, "plain")


def test_lengths_are_those_that_a_short_model_takes(tmp_path: Path) -> None:
    asked = wanted("nixl_both", "Qwen/Qwen3-8B", "h100", 2.0)
    asked = dataclasses.replace(asked, shape={**asked.shape, "max_position_embeddings": 8192})
    text, config = next(plans(asked, costs_of(asked, tmp_path)))
    assert max(config.phase_b_input_tokens) == 2048 and "max_model_len: 8192" in text


def test_more_hours_never_buy_fewer_blocks_and_too_few_are_refused(tmp_path: Path) -> None:
    bought = []
    for hours in (1.0, 2.0, 4.0, 8.0, 24.0):
        asked = wanted("nixl_both,mooncake_both", "Qwen/Qwen3-8B", "h100", hours)
        _, config = next(plans(asked, costs_of(asked, tmp_path)))
        bought.append((config.repeats, config.cell.min_completed))
    assert bought == sorted(bought) and bought[0][0] < bought[-1][0] == LADDER[0].repeats
    asked = wanted("nixl_both,mooncake_both", "Qwen/Qwen3-8B", "h100", 0.3)
    with pytest.raises(ConfigError, match=r"--hours 0\.3: 4 configurations .* Give --hours [01]\.\d"):
        next(plans(asked, costs_of(asked, tmp_path)))


def test_what_it_writes_takes_as_long_as_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By status, which adds up, and by plan, which simulates; nothing else is left on the disk, and no path of this host is in it."""
    assert call("--hours", "1", "--gpu", "l40s", "--to", "mine.yaml") == 0
    said = capsys.readouterr().out
    assert {p.name for p in tmp_path.iterdir()} == {"mine.yaml"}
    assert "not asked: ENGINE_PYTHON is not set" in said and "l40s: not on this host" in said
    assert re.search(r"Finds +a TTFT p90 tax of [\d.]+ % .*\(SIMULATED\)", said)
    assert said.endswith("Next, on a host with such a card: connector-tax run mine.yaml\n")
    assert str(tmp_path) not in (tmp_path / "mine.yaml").read_text()
    config = load_campaign(find_campaign("mine.yaml").config_file())
    root, times = rehearse(config, tmp_path / "out")
    plan = outlook(root, times, config)
    assert plan.hours <= 1.0
    assert seconds_left(config, CampaignFolder(tmp_path / "x")) == pytest.approx(3600 * plan.hours, rel=0.15)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), r"^this host has no GPU\. Say for which card to plan: --gpu NAME, of a100, h100"),
        (("--gpu", "h300"), r"^no GPU 'h300'\. .*--gpu NAME, of a100"),
        (("--gpu", "l40s", "--model", "Llama-3.3-70B-Instruct"), r"NVIDIA L40S has 48\.3 GB.* larger GPU"),
        (("--gpu", "h100", "--model", "Qwen/Qwen9"), r"Qwen/Qwen9: the shape .* --model-config FILE"),
        (("--gpu", "h100", "--connectors", "nxil_both"), r"'nxil_both'\. Did you mean nixl_both\?.*--list"),
        (("--gpu", "h100", "--connectors", "burning_0"), r"no connector 'burning_0'\."),
        (("--gpu", "h100", "--to", "there.yaml"), r"there\.yaml: is there already"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do_and_nothing_is_written(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "there.yaml").write_text("")
    with pytest.raises(ConfigError, match=said) as told:
        call(*arguments)
    assert "engine.gpu" not in str(told.value)
    assert [p.name for p in tmp_path.iterdir()] == ["there.yaml"]


def test_an_unknown_model_is_planned_by_its_own_config(tmp_path: Path) -> None:
    shape = read_json(MODELS / "Qwen3-8B.json")
    (tmp_path / "config.json").write_text((MODELS / "Qwen3-8B.json").read_text())
    assert shape_of("own/model", str(tmp_path / "config.json")) == shape
    assert shape_of(str(tmp_path), None) == shape


def test_the_card_of_this_host_is_taken_and_one_without_a_profile_is_named() -> None:
    other = Gpu(0, "GPU-0", "NVIDIA B200", 183_359, "GPU-0")
    assert card_of(None, [other, H100]) == ("h100", H100)
    assert card_of("a100", [H100]) == ("a100", None)
    with pytest.raises(ConfigError, match="no profile of NVIDIA B200 is there"):
        card_of(None, [other])


def test_a_connector_that_is_not_installed_is_told_with_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = Fault("no_package", "mooncake", install="pip install mooncake-transfer-engine")
    monkeypatch.setattr(checks, "faults", lambda *_: [None, lacks])
    with pytest.raises(ConfigError) as told:
        call("--connectors", "nixl_both,mooncake_both", "--engine-python", "/py", "--gpu", "h100")
    first, last = str(told.value).splitlines()
    assert first.startswith("mooncake_both: /py has no package mooncake.")
    assert first.endswith("/py -m pip install mooncake-transfer-engine")
    assert last == "Or leave it: --connectors nixl_both" and not list(tmp_path.iterdir())


def test_the_list_says_which_are_installed_and_has_no_test_connector(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacks = Fault("no_package", "nixl", install="pip install nixl")
    monkeypatch.setattr(
        checks,
        "faults",
        lambda python, connectors, _: [lacks if "nixl" in c.id else None for c in connectors],
    )
    assert command("init").call(["--list", "--engine-python", sys.executable]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["mooncake_both"].endswith("installed")
    assert lines["nixl_both"].endswith("-m pip install nixl")
    assert not {*TEST_CONNECTORS} & {*lines, *(c.id for c in known_connectors())}


def test_shapes_are_those_of_the_models() -> None:
    """By the number of parameters that each model's card says."""
    found = {p.stem: model_shape(read_json(p), str(p)).total / 1e9 for p in MODELS.glob("*.json")}
    assert found.pop("tiny-qwen3") < 0.01  # a test's
    assert found == {name: pytest.approx(billions, rel=0.005) for name, billions in PARAMETERS.items()}
