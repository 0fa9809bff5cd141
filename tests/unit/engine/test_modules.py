"""Modules that a connector needs: whether the engine's interpreter has them, compiled for its torch's CUDA."""

import sys
from pathlib import Path

import pytest
from builders import campaign_config
from msgspec.structs import replace

from connector_tax.base.config import EngineConfig
from connector_tax.base.records.connector import ConnectorSpec, ModuleNeed
from connector_tax.run.measure.preflight import unusable_modules


@pytest.fixture
def engine() -> EngineConfig:
    """Tests' own interpreter as vLLM's."""
    return replace(campaign_config().engine, kind="vllm", python=sys.executable)


@pytest.fixture
def connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ConnectorSpec:
    """Needs a package whose library is linked against CUDA 12's runtime, one without libraries, and one that is not there."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name in ("of_cuda_12", "of_python"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('nobody need import it')\n")
    (tmp_path / "of_cuda_12" / "ops.cpython-311-x86_64-linux-gnu.so").write_bytes(
        b"\x7fELF\0libcudart.so.12\0libc.so.6\0"
    )
    needs = [ModuleNeed(m, "pip install it") for m in ("of_cuda_12", "of_python", "nowhere_to_be_found")]
    return ConnectorSpec(id="x", label="x", kv_transfer_config=None, modules=tuple(needs))


def test_a_package_for_another_cuda_is_named_with_both(
    engine: EngineConfig, connector: ConnectorSpec
) -> None:
    assert unusable_modules(engine, (connector,), "13.0") == {
        "of_cuda_12": "has of_cuda_12 for CUDA 12, and its torch is built for CUDA 13.0",
        "nowhere_to_be_found": "has no module nowhere_to_be_found",
    }


@pytest.mark.parametrize("cuda", ["12.8", None])
def test_one_for_its_torchs_cuda_is_fine_and_without_cuda_any(
    engine: EngineConfig, connector: ConnectorSpec, cuda: str | None
) -> None:
    assert list(unusable_modules(engine, (connector,), cuda)) == ["nowhere_to_be_found"]


def test_one_that_is_packaged_by_cuda_needs_a_build_for_it(
    engine: EngineConfig, connector: ConnectorSpec
) -> None:
    """The package for hosts without CUDA has the same modules, and moves nothing between GPUs."""
    need = ModuleNeed("of_python", "pip install it", {"13": "pip install it-cuda13"})
    packaged = replace(connector, modules=(need,))
    assert unusable_modules(engine, (packaged,), "13.0") == {
        "of_python": "has of_python built without CUDA, and its torch is built for CUDA 13.0"
    }
    assert not unusable_modules(engine, (packaged,), None)
