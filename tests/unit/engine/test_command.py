"""What an engine is given: no digit lost, nothing swallowed, no other model, vLLM's own command line; and requests know the engine's key."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launches import launch_of
from msgspec.structs import replace

from connector_tax.base.config import EngineConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine.command import engine_arguments, engine_environment
from connector_tax.run.engine.gpus import Cards

PLAIN = ConnectorSpec(id="plain", label="plain", kv_transfer_config=None)


@pytest.fixture
def engine() -> EngineConfig:
    return load_campaign(PROJECT_ROOT / "config" / "demo.yaml").engine


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (16777217.5, "16777217.5"),
        (0.9012345678, "0.9012345678"),
        (16.0, "16"),
    ],
)
def test_a_number_keeps_all_its_digits(engine: EngineConfig, value: float, given: str) -> None:
    assert engine_arguments(replace(engine, args={"x": value}, extra_args=()), PLAIN) == ["--x", given]


@pytest.mark.parametrize("arguments", [("--api-k", "K"), ("--api_key=K",)])
def test_a_key_that_requests_of_ours_would_not_know_is_refused(
    engine: EngineConfig, arguments: tuple[str, ...]
) -> None:
    """vLLM's command line goes before its environment, and everybody on the host can read it."""
    with pytest.raises(ConfigError, match=r"would set --api-key.*set engine\.args\.api_key"):
        engine_arguments(replace(engine, extra_args=arguments), PLAIN)
    assert engine_arguments(replace(engine, args={"api_server_count": 2}), PLAIN)[:1] == [
        "--api-server-count"
    ]


def test_no_variable_around_us_loads_another_model(
    engine: EngineConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_MODEL_REDIRECT_PATH", "/a/file")
    real = replace(engine, kind="vllm", python="/bin/true", model=str(tmp_path))
    with pytest.raises(ConfigError, match=r"VLLM_MODEL_REDIRECT_PATH is set.*Unset it"):
        engine_environment(real, PLAIN, Cards((), 0))
    assert "CONNECTOR_TAX_ENGINE_MODEL" in engine_environment(engine, PLAIN, Cards((), 0))


def test_a_dotted_argument_without_its_value_swallows_no_connector(engine: EngineConfig) -> None:
    """vLLM takes the word behind ``--name.key`` for its value, whatever that is."""
    kv = {"kv_connector": "X", "kv_role": "kv_both"}
    real = replace(
        engine, kind="vllm", python="/bin/echo", args={}, extra_args=("--additional-config.trace",)
    )
    words = launch_of(real, replace(PLAIN, kv_transfer_config=kv)).command()
    assert words[4:6] == [engine.model, f"--kv-transfer-config={json.dumps(kv)}"]
    assert words[-1] == "--additional-config.trace"


PLUGINS = Path(__file__).parents[3] / "launch" / "plugins"
# As every release from 0.11 to 0.33 has it.
MAIN = """
import importlib.metadata
import sys
def main():
    print("version", importlib.metadata.version("vllm"))
    print("asked", *sys.argv[1:])
    from vllm import platforms
    print("elsewhere", platforms.build())
"""
PLATFORMS = """
from importlib.metadata import PackageNotFoundError, version
def build():
    try:
        return version("vllm")
    except PackageNotFoundError:
        return "a CPU build"
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    cli = tmp_path / "vllm" / "entrypoints" / "cli"
    cli.mkdir(parents=True)
    (tmp_path / "vllm" / "__init__.py").write_text("__version__ = '0.32.0'\n")
    (tmp_path / "vllm" / "platforms.py").write_text(PLATFORMS)
    for folder in (cli, cli.parent):
        (folder / "__init__.py").touch()
    (cli / "main.py").write_text(MAIN)
    return tmp_path


def run(package: Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": f"{PLUGINS}:{package}"}
    command = [sys.executable, "-m", "vllm_serve", "serve", "MODEL", "--port", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_a_build_that_is_not_called_vllm_starts(package: Path) -> None:
    """And the rest of vLLM still sees that it is another build: its platforms go by that."""
    assert run(package) == ["version 0.32.0", "asked serve MODEL --port 1", "elsewhere a CPU build"]


def test_a_build_with_its_metadata_is_left_as_it_is(package: Path) -> None:
    info = package / "vllm-0.33.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
    assert run(package)[0] == "version 0.33.0"
    assert run(package)[2] == "elsewhere 0.33.0"


def test_a_launch_gives_the_model_as_serve_wants_it() -> None:
    campaign = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
    engine = replace(campaign.engine, model="org/model", served_model_name="m")
    emulator = launch_of(engine, campaign.connector("plain")).command()
    vllm = launch_of(replace(engine, kind="vllm", python="/bin/echo"), campaign.connector("plain")).command()
    named = ["--served-model-name", "m", "--host", "127.0.0.1", "--port", "1"]
    assert emulator[:10] == [
        sys.executable,
        "-m",
        "connector_tax.run.emulator",
        "--model",
        "org/model",
        *named[:5],
    ]
    assert vllm[:11] == ["/bin/echo", "-m", "vllm_serve", "serve", "org/model", *named]
