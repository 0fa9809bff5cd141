"""Entry points that vLLM's plugin loader calls in each of its processes, before vLLM is imported."""

import os

VARIABLE = "CONNECTOR_TAX_VIRTUAL_GPU"


def platform():
    """Return the platform's qualified name; None lets vLLM detect its own."""
    return "virtual_gpu.platform.VirtualGpuPlatform" if os.environ.get(VARIABLE) else None


def general():
    """Allow model runner V2 in the engine core's process, which does not ask the platform again."""
    if os.environ.get(VARIABLE):
        from virtual_gpu.platform import let_runner_v2_be_chosen

        let_runner_v2_be_chosen()
