"""The GPU whose state is sampled is the one that the engine is shown."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from connector_tax.config import EngineConfig
from connector_tax.engine.command import visible_gpu
from connector_tax.records.connector import ConnectorSpec

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import campaign_config


@pytest.fixture
def plain() -> ConnectorSpec:
    return campaign_config("config.yaml").connector("plain")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> EngineConfig:
    monkeypatch.setenv("ENGINE_PYTHON", sys.executable)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return replace(campaign_config("config.yaml").engine, python=sys.executable, gpu=3)


def test_it_is_the_campaigns(engine: EngineConfig, plain: ConnectorSpec) -> None:
    assert visible_gpu(engine, plain) == "3"


@pytest.mark.parametrize(
    ("shown", "gpu"), [("2,5", "2"), ("GPU-12ab", "GPU-12ab"), ("", None), ("-1", None), ("NoDevFiles", None)]
)
def test_the_environment_comes_first(
    engine: EngineConfig,
    plain: ConnectorSpec,
    monkeypatch: pytest.MonkeyPatch,
    shown: str,
    gpu: str | None,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert visible_gpu(engine, plain) == gpu
    assert visible_gpu(replace(engine, env={"CUDA_VISIBLE_DEVICES": "7"}), plain) == "7"


def test_the_embedded_engine_has_none(plain: ConnectorSpec) -> None:
    assert visible_gpu(campaign_config("demo.yaml").engine, plain) is None
