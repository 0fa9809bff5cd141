"""What a launch script is given: no digit lost, nothing swallowed, no other model, and requests know the engine's key."""

import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from connector_tax.base.config import EngineConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine.command import api_key, engine_arguments, engine_environment
from connector_tax.run.engine.gpus import Cards

PLAIN = ConnectorSpec(id="plain", label="plain", kv_transfer_config=None)


@pytest.fixture
def engine() -> EngineConfig:
    return load_campaign(PROJECT_ROOT / "config" / "demo.yaml").engine


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (1234567.0, "1234567"),
        (16777217.5, "16777217.5"),
        (0.9012345678, "0.9012345678"),
        (16.0, "16"),
        (1e300, "1e+300"),
        (-0.5, "-0.5"),
    ],
)
def test_a_number_keeps_all_its_digits(engine: EngineConfig, value: float, given: str) -> None:
    assert engine_arguments(replace(engine, args={"x": value}, extra_args=()), PLAIN) == ["--x", given]


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (["--api_key", "K"], "K"),
        (["--api-k", "K"], "K"),
        (["--api_key=K"], "K"),
        (["--api-key", "A", "--api-key", "K"], "K"),
        (["--api-key", "K", "L"], "K"),
        (["--api-key", "--seed", "1"], None),
        (["--api-server-count", "2"], None),
        (["--api", "K"], None),
    ],
)
def test_the_key_is_read_as_vllms_parser_reads_it(
    engine: EngineConfig, arguments: list[str], key: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_API_KEY", raising=False)
    assert api_key(replace(engine, extra_args=tuple(arguments)), PLAIN) == key


def test_no_variable_around_us_loads_another_model(
    engine: EngineConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VLLM_MODEL_REDIRECT_PATH", "/a/file")
    real = replace(engine, kind="vllm", python="/bin/true", model=str(tmp_path))
    with pytest.raises(ConfigError, match=r"VLLM_MODEL_REDIRECT_PATH is set.*Unset it"):
        engine_environment(real, PLAIN, Cards((), 0))
    assert engine_environment(engine, PLAIN, Cards((), 0))["MODEL"] == engine.model


def test_a_dotted_argument_without_its_value_swallows_no_connector(tmp_path: Path) -> None:
    """vLLM takes the word behind ``--name.key`` for its value, whatever that is."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    python.chmod(0o755)
    kv = '{"kv_connector": "X",\n "kv_role": "kv_both"}'
    environment = {"PATH": os.environ["PATH"], "MODEL": "m", "ENGINE_PYTHON": str(python)}
    script = PROJECT_ROOT / "launch" / "launch_any.sh"
    shown = subprocess.run(
        ["bash", str(script), "--additional-config.trace"],
        env=environment | {"KV_TRANSFER_CONFIG": kv},
        capture_output=True,
        text=True,
        check=True,
    )
    words = shown.stdout.split("\0")[:-1]
    assert (
        words[2:5] == ["serve", "m", f"--kv-transfer-config={kv}"]
        and words[-1] == "--additional-config.trace"
    )
