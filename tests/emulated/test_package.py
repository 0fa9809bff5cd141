"""The package as somebody installs it: from its sdist, without a checkout, at first with the dependencies of core commands alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from host_faults import LIMITS_ON_THE_CLIENT

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.emulated


def said(*command: str | Path, at: Path, code: int = 0) -> str:
    # Others measure beside this test, so a late client spoils no cell. The package is the one that was installed.
    bare = os.environ | {
        "PYTHONPATH": str(ROOT / "tests" / "injected"),
        "INJECTED_LIFTED": " ".join(LIMITS_ON_THE_CLIENT),
    }
    done = subprocess.run([*map(str, command)], cwd=at, capture_output=True, text=True, env=bare, timeout=600)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of the sdist, which is built of a copy."""
    there = tmp_path_factory.mktemp("built")
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", ".", ":!results", ":!tests"]
    for name in said(*listed, at=ROOT).splitlines():
        if (ROOT / name).is_file():
            (there / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (there / "source" / name).write_bytes((ROOT / name).read_bytes())
    build = "from setuptools.build_meta import build_sdist; build_sdist('..')"
    said(sys.executable, "-c", build, at=there / "source")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    said(*pip, *there.glob("*.tar.gz"), at=there)
    [found] = there.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def programs(wheel: Path) -> Path:
    """Of an environment with the package and what it depends on, in the versions of the lock file."""
    there = wheel.parent
    pins = re.findall(r"^[\w.-]+==[^\\\n]*", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (there / "pins.txt").write_text("\n".join(pins))
    said(sys.executable, "-m", "venv", there / "env", at=there)
    install = [there / "env" / "bin" / "pip", "install", "--constraint", there / "pins.txt"]
    said(*install, wheel, at=there)
    return there / "env" / "bin"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Plain vLLM and the no-op connector at one rate."""
    value = yaml.safe_load((ROOT / "config" / "demo.yaml").read_text())
    cell = {**value["cell"], "min_completed": 20}
    value |= {"campaign": "small", "connectors": ["plain", "noop_connector"], "cell": cell}
    value["phase_a"]["rates_per_s"] = [20]
    del value["phase_b"]
    value["phase_b_prime"] = {}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(value))
    return tmp_path / "small.yaml"


def test_without_extras_it_loads_measures_reads_and_packs(programs: Path, config: Path) -> None:
    """Snakemake is asked for in one line, and sittings need none."""
    tax, here = programs / "connector-tax", config.parent
    assert "usage: connector-tax COMMAND" in said(tax, "--help", at=here)
    load = ["load", "--demo", "--rate", "20", "--shape", "64,8", "--num-prompts", "10"]
    assert "10 requests in" in said(tax, *load, at=here)
    [line] = said(tax, "run", config, at=here, code=2).splitlines()
    assert "pip install 'connector-tax[run]'" in line
    said(tax, "run", config, "--minutes", "4", at=here)
    said(tax, "report", config, at=here)
    assert (here / "results" / "small" / "report.html").stat().st_size > 100_000
    said(tax, "bundle", "results/small", "--to", "small.tar.xz", at=here)
    assert "came out the same, byte for byte" in said(tax, "verify", "small.tar.xz", "--reproduce", at=here)


def test_with_the_extra_run_snakemake_measures_beside_the_caller(programs: Path, config: Path) -> None:
    wheel = next(programs.parents[1].glob("*.whl"))
    install = [programs / "pip", "install", "--constraint", programs.parents[1] / "pins.txt"]
    said(*install, f"{wheel}[run]", at=config.parent)
    said(programs / "connector-tax", "run", config, at=config.parent)
    assert (config.parent / "results" / "small" / "report.html").is_file()
