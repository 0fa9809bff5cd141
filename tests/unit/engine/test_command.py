"""What an engine is given: no digit lost, nothing swallowed, no other model, and requests know the engine's key."""

import json
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
    "arguments", [("--api_key", "K"), ("--api-k", "K"), ("--api_key=K",), ("--api", "K")]
)
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
