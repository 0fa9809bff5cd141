"""Whether the virtual GPU fits the release of vLLM that an engine has, by the release's source files and before anything is launched.

What it looks for is said by ``launch/plugins/virtual_gpu/needed.py``, which is run here as a program.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from connector_tax.base.config import EngineConfig
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import EngineError
from connector_tax.run.engine.container import interpreter
from connector_tax.run.engine.patching import vllm_folder

PLUGINS = PROJECT_ROOT / "launch" / "plugins"
# The releases that it was run on, oldest and newest (docs/releases.md).
RUN_ON = ("0.27", "0.32")


def refuse_misfit(engine: EngineConfig, version: str | None) -> None:
    """Nothing, but for a virtual GPU on a release that it does not fit.

    Args:
        version: of vLLM, as the interpreter tells it.

    Raises:
        EngineError: the release lacks what the virtual GPU is built on, or calls its connectors in another order; or there is no vLLM.
    """
    if engine.virtual_gpu is None:
        return
    folder = vllm_folder(engine)
    reason = misfit_of(folder, interpreter(engine) if engine.container is not None else [sys.executable])
    if reason is not None:
        raise EngineError(
            f"engine.kind: virtual_gpu does not fit vLLM {version or 'of an unknown version'} in {folder}: {reason}. "
            f"It was run on {RUN_ON[0]} to {RUN_ON[1]} (docs/releases.md): give engine.python one of these, or measure on a "
            "real GPU (engine.kind: vllm)."
        )


def note_on(engine: EngineConfig, version: str | None) -> str | None:
    """What to say of a release that the virtual GPU seems to fit and that it was not run on; None for the others."""
    if engine.virtual_gpu is None or version is None:
        return None
    if release_key(RUN_ON[0]) <= release_key(version) <= release_key(RUN_ON[1]):
        return None
    return (
        f"the virtual GPU was run on vLLM {RUN_ON[0]} to {RUN_ON[1]}, and this is {version}: its source has all that is needed, "
        "and hooks in a known order"
    )


def misfit_of(vllm: Path, python: Sequence[str] = (sys.executable,)) -> str | None:
    """Why the virtual GPU cannot run with the release in the folder ``vllm``; None where nothing is known against it.

    Args:
        python: an interpreter that sees the folder.

    Raises:
        EngineError: it could not be asked.
    """
    # Of a container's interpreter the current folder is its own.
    ask = f"import runpy, sys; sys.path.insert(0, {str(PLUGINS)!r}); runpy.run_module('virtual_gpu.needed', run_name='__main__', alter_sys=True)"
    command = [*python, "-c", ask, str(vllm)]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, cwd=PLUGINS)
    try:
        reason: str | None = json.loads(done.stdout)["reason"]
    except ValueError as error:
        raise EngineError(
            f"{' '.join(command)} failed in {PLUGINS}: {done.stderr.strip() or done.stdout}"
        ) from error
    return reason


def release_key(version: str) -> tuple[int, ...]:
    """Of ``0.32.1.dev3+cpu``: (0, 32)."""
    numbers = [part for part in version.split(".")[:2] if part.isdigit()]
    return tuple(int(n) for n in numbers)
