"""A GPU that is a clock, for vLLM: everything of vLLM runs but the model.

Only an engine imports it, through the entry points in ``entry/`` and CONNECTOR_TAX_VIRTUAL_GPU (see
``device.py``). ``platform.py`` lets vLLM decide as on CUDA, ``worker.py`` is vLLM's own GPU worker with
``runner.py`` as model runner, and ``clock.py`` says when a step is done. Needs the standard library, vLLM and
its torch.

It cannot show kernels, memory traffic, transfers, and host-side input preparation unless that is set as busy
time.
"""
