"""The engine that tests on real vLLM share."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def engine_python() -> str:
    """The engine's interpreter; built if need be, and used again by later runs."""
    built = subprocess.run(["bash", "scripts/make_engine_env.sh"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return built.stdout.strip()


@pytest.fixture(scope="session")
def tiny_model(engine_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    made = [engine_python, "scripts/make_model_folder.py", "config/models/tiny-qwen3.json", str(folder)]
    subprocess.run(made, cwd=ROOT, check=True)
    return folder
