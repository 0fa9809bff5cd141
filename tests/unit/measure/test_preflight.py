"""Preflight on the embedded engine: warmed first, then judged; and what plain's idle engine takes is written down."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from builders import ROOT, campaign_config
from families import within
from msgspec.structs import replace
from nvml_stand_in import Card, Nvml

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import EngineConfig, parse_campaign
from connector_tax.base.documents.identity import EngineIdentity, Versions
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.ports import is_taken
from connector_tax.run.measure import preflight as module
from connector_tax.run.measure.preflight import Launching, bootstrap_beside, run_preflight


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))


def preflight(root: Path, fault: str = "", launch: Launching = "all", **entry: Any) -> CampaignFolder:
    """Plain, and a connector with ``entry`` and ``fault``; on a folder of its own."""
    connector = {
        "label": "under test",
        "kv_transfer_config": {"kv_connector": "NoOpConnector", "kv_role": "kv_both"},
        "env": {"CONNECTOR_TAX_FAULT": fault},
    }
    known = {"plain": {"label": "plain", "kv_transfer_config": None}, "tried": {**connector, **entry}}
    (root / "connectors.yaml").write_text(yaml.safe_dump(known))
    value = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    value |= {"connectors": ["plain", "tried"], "connectors_file": str(root / "connectors.yaml")}
    value["phase_a"]["input_tokens"] = 96
    value["phase_b"] = {"input_tokens": [64, 96], "output_tokens": [8]}
    value["phase_b_prime"] = {"configs": ["plain"], "shapes": [[128, 8]]}
    document = campaign_document(parse_campaign(value, "test"), date="2026-01-01", created_utc="")
    folder = CampaignFolder(root / "demo")
    write_json(folder.campaign_file, document)
    run_preflight(folder.campaign_file, launch=launch)
    return folder


def decision(folder: CampaignFolder, connector: str = "tried") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(folder.preflight_status.read_text())["configs"][connector]
    return found


def test_what_compiles_at_the_first_request_of_a_length_is_warm_up(tmp_path: Path) -> None:
    """A request may take a second, and the first of each length takes longer."""
    limits = {"verify_requests": 1, "verify_output_tokens": 4, "verify_within_s": 1.0}
    found = decision(preflight(tmp_path, "compile:1.1", **limits))
    assert found["decision"] == "include", found["reason"]
    checked = {c["check"]: c["detail"] for c in found["checked"]}
    assert checked["warm-up"].startswith("prompts of 32, 64, 96, 128, 600 tokens; the slowest took ")
    assert checked["short requests"].startswith("1 of 4 output tokens answered in ")
    assert checked["short requests"].endswith("together (limit 1 s)")


def test_who_is_not_launched_is_included_untried_and_may_be_tried_later(tmp_path: Path) -> None:
    """On a host lent for minutes; nothing is held against a recorder that had nothing to record, and plain is not launched twice."""
    folder = preflight(tmp_path, "die_at_start", "none")
    assert not (folder.preflight / "plain").exists()
    for connector in ("plain", "tried"):
        assert decision(folder, connector)["decision"] == "include"
        assert decision(folder, connector)["checked"] == []
    folder = preflight(tmp_path, "die_at_start", "plain")
    status = json.loads(folder.preflight_status.read_text())
    plain = status["configs"]["plain"]
    assert next(c["check"] for c in plain["checked"]) == "ready" and plain["token_s"] > 0
    assert status["configs"]["tried"]["checked"] == [] and status["hooks_unheard"] == {}
    assert status["step_timing_available"] and not (folder.preflight / "tried").exists()
    (folder.preflight / "verify_plain.log").unlink()
    folder = preflight(tmp_path, "die_at_start", "all")
    assert decision(folder)["decision"] == "skip"
    assert decision(folder, "plain") == plain and not (folder.preflight / "verify_plain.log").exists()
    assert decision(preflight(tmp_path, "die_at_start", "none"), "plain") == plain


def test_a_warm_engine_that_is_too_slow_is_skipped(tmp_path: Path) -> None:
    found = decision(preflight(tmp_path, verify_within_s=0.001))
    assert found["decision"] == "skip"
    assert found["reason"].startswith("short request")
    assert "0.001 s" in found["reason"]


def test_an_engine_that_answers_with_errors_is_skipped_with_what_it_said(tmp_path: Path) -> None:
    found = decision(preflight(tmp_path, "http500:1"))
    assert found["decision"] == "skip"
    assert found["reason"].startswith("warm-up: first prompt of 32 tokens: HTTP 500: ")
    assert "RuntimeError: this request was to fail (on demand)" in found["reason"]


def test_plains_idle_times_are_written_down_and_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every prompt length of the campaign, and of nobody but plain; a card that is named does not matter here. Counters that a connector
    moves are kept as well. Idle times of an earlier version are taken anew."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "garbage")
    lmcache = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
    folder = preflight(tmp_path, kv_transfer_config=lmcache)
    plain = decision(folder, "plain")
    assert list(plain["prompt_s"]) == ["64", "96", "128"]
    assert all(0 < s < 5 for s in plain["prompt_s"].values())
    assert 0 < plain["token_s"] < 0.5
    assert decision(folder)["prompt_s"] is None and decision(folder)["token_s"] is None
    own = {"external_prefix_cache_queries": 32, "lmcache:num_lookup_requests_total": 32}
    assert decision(folder)["counters"] == own
    assert "counters" not in plain
    remembered = folder.preflight / "plain" / "decision.json"
    assert (
        json.loads((folder.preflight / "tried" / "decision.json").read_text())["counters"].keys() > own.keys()
    )
    (folder.preflight / "verify_plain.log").unlink()
    assert decision(preflight(tmp_path, kv_transfer_config=lmcache), "plain") == plain
    assert not (folder.preflight / "verify_plain.log").exists()  # nothing was launched for it
    earlier = json.loads(remembered.read_text())
    del earlier["prompt_s"], earlier["token_s"]
    remembered.write_text(json.dumps(earlier))
    anew = decision(preflight(tmp_path, kv_transfer_config=lmcache), "plain")
    assert set(anew["prompt_s"]) == {"64", "96", "128"}


def test_a_package_that_comes_later_has_only_its_own_connectors_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured already is not launched once more for it."""
    original = module.identity_with_model
    installed: Versions = {"lmcache": None}

    def identity(engine: EngineConfig, cards: Cards) -> EngineIdentity:
        found = original(engine, cards)
        return msgspec.structs.replace(found, versions={**found.versions, **installed})

    monkeypatch.setattr(module, "identity_with_model", identity)
    needs = [{"module": "lmcache", "install": "pip install lmcache"}]
    folder = preflight(tmp_path, modules=needs)
    logs = [folder.preflight / f"verify_{i}.log" for i in ("plain", "tried")]
    for log in logs:
        log.unlink()
    installed["lmcache"] = "0.3.1"
    preflight(tmp_path, modules=needs)
    assert [log.exists() for log in logs] == [False, True]


def test_a_consumers_bootstrap_port_that_is_taken_is_named_before_anything_starts(tmp_path: Path) -> None:
    """Or the stand-in would die unheard, and the engine ask a stranger."""
    config = campaign_config("config.yaml")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        env = {"VLLM_MOONCAKE_BOOTSTRAP_PORT": str(port)}
        engine = replace(config.engine, python=sys.executable, env=env)
        with pytest.raises(EngineError) as told:
            with bootstrap_beside(engine, config.connector("mooncake_consumer"), Cards((), 0), tmp_path):
                pytest.fail("started")
    words = f"mooncake_consumer: port {port} (VLLM_MOONCAKE_BOOTSTRAP_PORT), wanted by the bootstrap server that preflight"
    assert str(told.value).startswith(words)
    assert f"is in use by process {os.getpid()} " in str(told.value)


# Starts what a consumer gets beside it, says where, and stands still as preflight does while the engine starts.
BESIDE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from builders import campaign_config
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.measure.preflight import bootstrap_beside
config = campaign_config("demo.yaml")
with bootstrap_beside(config.engine, config.connector("mooncake_consumer"), Cards((), 0), Path(sys.argv[2])) as beside:
    print(beside.env["VLLM_MOONCAKE_BOOTSTRAP_PORT"], flush=True)
    time.sleep(600)
"""


def test_no_bootstrap_server_survives_a_killed_preflight(tmp_path: Path) -> None:
    """It would listen on the port that the next Mooncake engine needs."""
    command = [sys.executable, "-c", BESIDE, str(Path(__file__).parents[2]), str(tmp_path / "bootstrap")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as preflighting:
        assert preflighting.stdout is not None
        port = int(preflighting.stdout.readline())
        assert within(20, lambda: is_taken(port)), "it never listened"
        preflighting.kill()
    assert within(20, lambda: not is_taken(port)), "it listens still"


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        (
            "GPU-bb",
            "max_model_len: 200000 tokens need 18.3 GiB of KV memory, and GPU 1: NVIDIA H20 (UUID: GPU-bb)",
        ),
        ("GPU-cc", "CUDA_VISIBLE_DEVICES=GPU-cc: 'GPU-cc' names no card of this host"),
    ],
)
def test_what_cannot_start_is_said_before_any_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: str, said: str
) -> None:
    """Of the card that the engine would get, which is the smaller one here."""
    cards = Nvml(Card("GPU-aa"), Card("GPU-bb", memory_mib=16 * 1024))
    monkeypatch.setitem(sys.modules, "pynvml", cards)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", devices)
    monkeypatch.setattr(module, "running_engine", lambda request: pytest.fail("launched"))
    shutil.copy(ROOT / "config" / "models" / "Qwen3-Coder-30B-A3B-Instruct.json", tmp_path / "config.json")
    config = campaign_config("config.yaml")
    engine = replace(config.engine, python=sys.executable, model=str(tmp_path))
    document = campaign_document(replace(config, engine=engine), date="2026-01-01", created_utc="")
    write_json(tmp_path / "run" / "campaign.json", document)
    with pytest.raises(ConfigError) as told:
        run_preflight(tmp_path / "run" / "campaign.json")
    assert said in str(told.value)


def gpu_engine(root: Path, release: str, *, cuda: str | None = "13.0", flashinfer: bool = False) -> Path:
    """An interpreter with as much of a slim GPU engine as can be seen without importing it."""
    site = root / "site"
    for package, file, text in (
        ("vllm", "_version.py", f"__version__ = version = {release!r}"),
        ("torch", "version.py", f"cuda: Optional[str] = {cuda!r}"),
        *([("flashinfer", "version.py", "")] if flashinfer else []),
    ):
        (site / package).mkdir(parents=True)
        (site / package / "__init__.py").touch()
        (site / package / file).write_text(text)
    python = root / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


@pytest.mark.parametrize(
    ("release", "there", "config_env", "shell", "refused"),
    [
        ("0.33.0+cu130", {}, {}, None, True),
        ("0.20.2", {}, {}, None, False),  # samples with FlashInfer only if told to
        ("0.20.2", {}, {}, "1", True),
        ("0.34.0", {}, {}, None, False),  # does without it
        ("0.25.1", {"flashinfer": True}, {}, None, False),
        ("0.25.1", {"cuda": None}, {}, None, False),
        ("0.25.1", {}, {"VLLM_USE_FLASHINFER_SAMPLER": "0"}, "1", False),
    ],
)
def test_an_engine_that_would_die_without_flashinfer_is_told_of_before_any_launch(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    release: str,
    there: dict[str, Any],
    config_env: dict[str, str],
    shell: str | None,
    refused: bool,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(Card("GPU-aa", "NVIDIA H100 80GB HBM3", 81_559)))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("VLLM_USE_FLASHINFER_SAMPLER", raising=False)
    if shell is not None:
        monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", shell)
    python = gpu_engine(tmp_path, release, **there)
    shape = (ROOT / "config" / "models" / "Qwen3-0.6B.json").read_text()
    (tmp_path / "config.json").write_text(shape)
    config = campaign_config("gpu-smoke.yaml")
    engine = replace(
        config.engine, python=str(python), model=str(tmp_path), env=config_env, step_timing=False
    )
    document = campaign_document(replace(config, engine=engine), date="2026-01-01", created_utc="")
    campaign = CampaignFolder(tmp_path / "run")
    write_json(campaign.campaign_file, document)
    if not refused:
        run_preflight(campaign.campaign_file, launch="none")
        assert decision(campaign, "plain")["decision"] == "include"
        return
    with pytest.raises(ConfigError) as told:
        run_preflight(campaign.campaign_file, launch="none")
    assert f"{python} has no module flashinfer, without which vLLM {release} does not start" in str(
        told.value
    )
    assert 'Set engine.env: VLLM_USE_FLASHINFER_SAMPLER: "0"' in str(told.value)


@pytest.mark.parametrize("cuda", ["13.0", None])
def test_nothing_is_downloaded_for_an_engine_whose_card_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuda: str | None
) -> None:
    def download(engine: object) -> None:
        raise ConfigError("downloaded")

    monkeypatch.setattr(module, "fetch_model", download)
    monkeypatch.setattr(module, "missing_from_host", lambda engine: "org/model is not on this host")
    python = str(gpu_engine(tmp_path, "0.34.0", cuda=cuda))
    engine = replace(campaign_config("gpu-smoke.yaml").engine, python=python, model="org/model")
    with pytest.raises(
        ConfigError, match="built for CUDA 13.0, and this host shows no" if cuda else "downloaded"
    ):
        module.identity_with_model(engine, Cards((), 0))


@pytest.mark.parametrize("name", ["gpu-smoke.yaml", "h200.yaml"])
def test_campaigns_for_slim_engines_need_no_flashinfer(name: str) -> None:
    assert campaign_config(name).engine.env["VLLM_USE_FLASHINFER_SAMPLER"] == "0"


@pytest.mark.parametrize(
    ("connector", "requests", "tokens", "seconds"),
    [("mooncake_consumer", 1, 4, 30), ("multi_mooncake_lmcache", 5, 32, 60), ("noop_connector", 5, 32, 30)],
)
def test_the_shipped_limits_are_the_designs(connector: str, requests: int, tokens: int, seconds: int) -> None:
    """Source: the design's section on pre-flight verification."""
    spec = campaign_config("config.yaml").connector(connector)
    found = (spec.verify_requests, spec.verify_output_tokens, spec.verify_within_s)
    assert found == (requests, tokens, seconds)


def test_a_connector_on_a_fallback_is_skipped_with_what_to_install(tmp_path: Path) -> None:
    """As LMCache's wheel for one CUDA is on torch for another: it serves on, with torch operations."""
    line = "lmcache.cuda_ops compiled extension not found; CudaDeviceOps stays on the torch baseline for all ops."
    needs = [{"module": "lmcache", "install": "pip install lmcache"}]
    found = decision(preflight(tmp_path, f"off_after:1,off_says:{line}", modules=needs))
    assert (found["decision"], found["install"]) == ("skip", "pip install lmcache")
    assert found["reason"].startswith("compiled operations: ") and line in found["reason"]


def test_a_counter_that_is_late_is_not_that_of_a_short_prompt() -> None:
    """LMCache adds to its counters every ten seconds: what the warm-up stored rose with the prompts of 32 tokens, and cells of 128 were called off."""
    counted = [
        {"asked": 4.0, "stored": 2.0, "late": 0.0},
        {"asked": 9.0, "stored": 2.0, "late": 6.0},
        {"asked": 10.0, "stored": 3.0, "late": 6.0, "new": 1.0},
    ]
    assert module._risen(counted, (32, 600), since_launch=False) == {"asked": 32, "stored": 600, "new": 600}
    assert module._risen([{}, *counted[1:]], (32, 600), since_launch=False) == {
        "asked": 600,
        "stored": 600,
        "new": 600,
    }
    assert module._risen(counted, (32, 600), since_launch=True).keys() == {"asked", "stored", "late", "new"}
