"""A GPU that is a clock, for vLLM: everything of vLLM runs but the model.

Imported by an engine alone, which finds it through the entry points in ``entry/`` and
CONNECTOR_TAX_VIRTUAL_GPU (see ``device.py``). ``platform.py`` lets vLLM decide as on CUDA, ``worker.py`` is
vLLM's own GPU worker with ``runner.py`` as model runner, and ``clock.py`` says when a step is done. Standard
library, torch as vLLM brings it, and vLLM.

What it cannot show: kernels, memory traffic, host-side input preparation (unless it is set as busy time), and
transfers.
"""
