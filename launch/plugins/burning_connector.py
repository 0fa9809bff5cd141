"""A connector of known cost: busy-waits a given number of microseconds in given hooks.

    {"kv_connector": "BurningConnector", "kv_connector_module_path": "burning_connector",
     "kv_role": "kv_both",
     "kv_connector_extra_config": {"burn_us": {"build_connector_meta": 200}}}

Burning holds the GIL and a core, as Python code does. docs/virtual-gpu.md says how a burn shows in a
campaign's numbers.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from noop_connector import NoOpConnector


def burn(duration_us: float) -> None:
    until_ns = perf_counter_ns() + round(duration_us * 1e3)
    while perf_counter_ns() < until_ns:
        pass


def burning(hook: Callable[..., Any], duration_us: float) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        burn(duration_us)
        return hook(*args, **kwargs)

    return call


class BurningConnector(NoOpConnector):
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        told = vllm_config.kv_transfer_config.kv_connector_extra_config
        for hook, duration_us in told.get("burn_us", {}).items():
            setattr(self, hook, burning(getattr(self, hook), duration_us))
