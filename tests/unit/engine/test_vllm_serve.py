"""vLLM is started by its own command line, also where the build is not called ``vllm``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from launches import launch_of
from msgspec.structs import replace

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT

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
