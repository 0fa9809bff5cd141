"""The embedded engine through the launch scripts: what starts, what is left, what is said."""

import json
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import httpx
import psutil
import pytest

from connector_tax.config import CampaignConfig, EngineConfig, load_campaign
from connector_tax.engine.command import (
    check_model,
    engine_arguments,
    engine_python,
    launch_script,
)
from connector_tax.engine.identity import redacted
from connector_tax.engine.process import LaunchError, LaunchRequest, running_engine
from connector_tax.engine.usage import cpu_seconds
from connector_tax.errors import ConfigError, EngineError
from connector_tax.records.connector import ConnectorSpec

CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture
def campaign() -> CampaignConfig:
    return load_campaign(CONFIG / "demo.yaml")


def vllm_engine(campaign: CampaignConfig, **changes: object) -> EngineConfig:
    return replace(campaign.engine, kind="vllm", **changes)  # type: ignore[arg-type]


def test_an_engine_serves_and_is_gone_afterwards(campaign: CampaignConfig, tmp_path: Path) -> None:
    request = LaunchRequest(campaign.engine, campaign.connector("nixl_both"), tmp_path)
    with running_engine(request) as engine:
        engine.wait_ready()
        family = [p.pid for p in psutil.Process(engine.supervisor.pid).children(recursive=True)]
        assert set(cpu_seconds(engine)) == {"api_server"}
        models = httpx.get(f"{engine.base_url}/v1/models").json()
        assert models["data"][0]["id"] == "embedded-engine"
    assert family and not any(psutil.pid_exists(pid) for pid in family)
    assert not (tmp_path / "engine.pid.json").exists()


def test_the_exact_command_can_be_run_again(campaign: CampaignConfig, tmp_path: Path) -> None:
    """launch.sh is valid shell and carries the connector's configuration as one argument."""
    request = LaunchRequest(campaign.engine, campaign.connector("mooncake_both"), tmp_path)
    with running_engine(request) as engine:
        engine.wait_ready()
    text = (tmp_path / "launch.sh").read_text()
    subprocess.run(["bash", "-n", str(tmp_path / "launch.sh")], check=True)
    echoed = subprocess.run(
        ["bash", "-c", text.replace("exec ", "printf '%s\\n' ")], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    config = json.loads(echoed[echoed.index("--kv-transfer-config") + 1])
    assert config == {"kv_connector": "MooncakeConnector", "kv_role": "kv_both"}
    assert "HF_TOKEN" not in text


def test_the_written_command_carries_what_matters_and_no_secret(tmp_path: Path) -> None:
    """By hand one gets the same server: what shapes it is there, what opens doors is not."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "MODEL": "m",
        "ENGINE_PYTHON": "echo",
        "LAUNCH_SH_OUT": str(tmp_path / "launch.sh"),
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "LD_LIBRARY_PATH": "/opt/a b",
        "HF_TOKEN": "hf_abcdefghijkl",
        "VLLM_API_KEY": "letmein",
        "LMCACHE_REMOTE_URL": "redis://user:letmein@host",
        "HOME_ALARM": "letmein",
    }
    script = CONFIG.parent / "launch" / "launch_nixl_both.sh"
    subprocess.run(["bash", str(script)], env=environment, check=True, capture_output=True)
    text = (tmp_path / "launch.sh").read_text()
    assert "export HF_HUB_OFFLINE=1\n" in text
    assert "export VLLM_CPU_KVCACHE_SPACE=1\n" in text
    assert "export LD_LIBRARY_PATH=/opt/a\\ b\n" in text
    assert "letmein" not in text and "hf_" not in text


def test_an_engine_that_dies_while_starting_says_why(campaign: CampaignConfig, tmp_path: Path) -> None:
    request = LaunchRequest(campaign.engine, campaign.connector("plain"), tmp_path, fault="die_at_start")
    with pytest.raises(LaunchError, match="RuntimeError: this engine was told to die at start"):
        with running_engine(request) as engine:
            engine.wait_ready()


def test_an_engine_that_is_too_slow_is_named(campaign: CampaignConfig, tmp_path: Path) -> None:
    slow = replace(campaign.engine, ready_timeout_s=0.5)
    request = LaunchRequest(slow, campaign.connector("plain"), tmp_path, fault="slow_start:20")
    with pytest.raises(LaunchError, match=r"not ready after 0\.5 s"), running_engine(request) as engine:
        engine.wait_ready()


def test_a_port_in_use_is_named_with_its_owner(campaign: CampaignConfig, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        engine = replace(campaign.engine, port=taken.getsockname()[1])
        request = LaunchRequest(engine, campaign.connector("plain"), tmp_path)
        with pytest.raises(EngineError, match=r"engine\.port: \d+ is in use by process \d+"):
            with running_engine(request):
                raise AssertionError("must not launch")


def test_arguments_follow_the_config(campaign: CampaignConfig) -> None:
    engine = replace(
        campaign.engine,
        args={"max_model_len": 200000, "enforce_eager": True, "async_scheduling": False, "x": None},
    )
    assert engine_arguments(engine, campaign.connector("plain")) == [
        "--max-model-len",
        "200000",
        "--enforce-eager",
        "--no-async-scheduling",
    ]


def test_a_connector_without_a_script_is_launched_by_the_common_one() -> None:
    kv = {"kv_connector": "X", "kv_role": "kv_both"}
    assert launch_script(ConnectorSpec("plain", "", None)).name == "launch_plain.sh"
    assert launch_script(ConnectorSpec("plain_matched_x", "", None)).name == "launch_plain.sh"
    assert launch_script(ConnectorSpec("my_new_connector", "", kv)).name == "launch_any.sh"


def test_a_missing_interpreter_is_one_message(campaign: CampaignConfig) -> None:
    with pytest.raises(ConfigError, match="export ENGINE_PYTHON="):
        engine_python(vllm_engine(campaign, python="${ENGINE_PYTHON}"))
    with pytest.raises(ConfigError, match="no such program"):
        engine_python(vllm_engine(campaign, python="/nowhere/python"))


def test_a_missing_model_directory_is_one_message(campaign: CampaignConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no model directory there"):
        check_model(vllm_engine(campaign, model=str(tmp_path / "nothing")))
    check_model(vllm_engine(campaign, model="Qwen/Qwen3-Coder-30B-A3B-Instruct"))


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "hf_abcdefghijkl", "<redacted>"),
        ("VLLM_API_KEY", "anything", "<redacted>"),
        ("HF_ENDPOINT", "https://user:pw@host/x", "https<redacted>host/x"),
        ("CUDA_VISIBLE_DEVICES", "0", "0"),
    ],
)
def test_secrets_do_not_reach_env_txt(name: str, value: str, shown: str) -> None:
    assert redacted(name, value) == shown
