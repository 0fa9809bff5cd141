"""What vLLM's plugin loader calls, in each of its processes. Nothing of vLLM is imported before that."""

import os

VARIABLE = "CONNECTOR_TAX_VIRTUAL_GPU"


def platform():
    """The platform's qualified name; None leaves vLLM with the one that it finds."""
    return "virtual_gpu.platform.VirtualGpuPlatform" if os.environ.get(VARIABLE) else None


def general():
    """In the engine core's process, where the configuration arrives ready and the platform is not asked
    again."""
    if os.environ.get(VARIABLE):
        from virtual_gpu.platform import let_runner_v2_be_chosen

        let_runner_v2_be_chosen()
