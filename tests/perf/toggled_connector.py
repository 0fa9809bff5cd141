"""The no-op connector, which vLLM 0.32 can do with and without between two steps, as a file says.

Loaded by a server that ``paired_toggling.py`` starts. While the file of TOGGLED_CONNECTOR_OFF exists the scheduler has no
connector and tells the worker so by sending no metadata; the worker then has none either. With TOGGLED_CONNECTOR_NOTHING=1
everything is switched but the connector: the switch against itself.
"""

import os
import threading
import time
from typing import Any

import vllm.distributed.kv_transfer.kv_transfer_state as state
from noop_connector import NoOpConnector

POLL_S = 0.05


class Switch:
    def __init__(self) -> None:
        self.off = False
        self.nothing = os.environ.get("TOGGLED_CONNECTOR_NOTHING") == "1"
        self._path = os.environ["TOGGLED_CONNECTOR_OFF"]
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.off = os.path.exists(self._path)
            time.sleep(POLL_S)


class ToggledConnector(NoOpConnector):
    """Installs the switch of its own side when it is made."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        (_install_scheduler if role.name == "SCHEDULER" else _install_worker)(self)


def _install_scheduler(connector: Any) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    switch, schedule = Switch(), Scheduler.schedule

    def switched(self: Any, *args: Any, **kwargs: Any) -> Any:
        off = switch.off
        self.connector = connector if switch.nothing or not off else None
        return schedule(self, *args, **kwargs)

    Scheduler.schedule = switched


def _install_worker(connector: Any) -> None:
    if os.environ.get("CONNECTOR_TAX_VIRTUAL_GPU"):
        _install_virtual_gpu()
        return
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    execute = GPUModelRunner.execute_model

    def switched(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        state._KV_CONNECTOR_AGENT = connector if scheduler_output.kv_connector_metadata is not None else None
        return execute(self, scheduler_output, *args, **kwargs)

    GPUModelRunner.execute_model = switched


def _install_virtual_gpu() -> None:
    """Model runner V2, whose connector has a switch of its own."""
    from virtual_gpu.runner import ClockModelRunner

    execute = ClockModelRunner.execute_model

    def switched(self: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        self._connector.set_disabled(scheduler_output.kv_connector_metadata is None)
        return execute(self, scheduler_output, *args, **kwargs)

    ClockModelRunner.execute_model = switched
