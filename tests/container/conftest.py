"""Container runtimes that run here, and one image for each."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from connector_tax.run.engine.container import RUNTIMES

sys.path.insert(0, str(Path(__file__).parents[1] / "emulated"))
from small_image import NAME, import_image

# For a try; an engine gets this process's own.
NPROC, NOFILE = 1024, 1024


@cache
def made_image(runtime: str) -> str | None:
    """Why ``runtime`` runs no container here; None where it does, and then it has the image."""
    if shutil.which(runtime) is None:
        return f"no {runtime} on PATH"
    asked = subprocess.run([runtime, "info"], capture_output=True, text=True)
    if asked.returncode != 0:
        return f"{runtime} info: {asked.stderr.strip().splitlines()[-1:]}"
    import_image(runtime, NAME)
    tried = [
        runtime,
        "run",
        "--rm",
        "--network=none",
        f"--ulimit=nproc={NPROC}",
        f"--ulimit=nofile={NOFILE}",
        NAME,
        "python3",
        "-c",
        "",
    ]
    done = subprocess.run(tried, capture_output=True, text=True)
    return None if done.returncode == 0 else f"{runtime} runs nothing here: {done.stderr.strip()[-300:]}"


@pytest.fixture(scope="session", params=RUNTIMES)
def runtime(request: pytest.FixtureRequest) -> str:
    reason = made_image(request.param)
    if reason is not None:
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture(scope="session")
def some_runtime() -> str:
    """The first that runs here."""
    found = next((runtime for runtime in RUNTIMES if made_image(runtime) is None), None)
    if found is None:
        pytest.skip("; ".join(str(made_image(runtime)) for runtime in RUNTIMES))
    return found


@pytest.fixture(scope="session", autouse=True)
def _images() -> Iterator[None]:
    yield
    for runtime in RUNTIMES:
        if made_image.cache_info().currsize and shutil.which(runtime) is not None:
            subprocess.run([runtime, "rmi", "--force", NAME], capture_output=True)


@pytest.fixture(scope="session")
def image() -> str:
    return NAME
