"""The image of Containerfile, where a runtime is that can have its base."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def made(some_runtime: str) -> Iterator[list[str]]:
    """How a container of it is started, without a network."""
    words = (ROOT / "Containerfile").read_text().split()
    base = words[words.index("FROM") + 1]
    have = (["image", "inspect", base], ["pull", base])
    if all(subprocess.run([some_runtime, *words], capture_output=True).returncode for words in have):
        pytest.skip(f"{some_runtime} cannot have {base}")
    name = "localhost/connector-tax-whole:test"
    subprocess.run(
        [some_runtime, "build", "--file", "Containerfile", "--tag", name, "."],
        cwd=ROOT,
        check=True,
        timeout=900,
    )
    yield [some_runtime, "run", "--rm", "--network=none", name]
    subprocess.run([some_runtime, "rmi", "--force", name], capture_output=True)


def test_it_loads_an_engine_of_its_own(made: list[str]) -> None:
    load = ["load", "--demo", "--rate", "20", "--shape", "64,8", "--num-prompts", "10"]
    done = subprocess.run([*made, *load], capture_output=True, text=True, timeout=120)
    # 1: the client was late, on a busy host.
    assert done.returncode in (0, 1), done.stderr
    assert "10 requests in" in done.stdout and "/load.html" in done.stdout


def test_it_is_nobody_of_importance_and_has_snakemake(made: list[str]) -> None:
    asked = "import os, snakemake; print(os.getuid() > 0, os.access('.', os.W_OK), os.getcwd())"
    command = [*made[:-1], "--entrypoint", "python", made[-1], "-c", asked]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True True /work\n", done.stderr
