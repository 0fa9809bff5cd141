"""A connector whose cost is known: it burns as many microseconds as it was told, in the hooks that it was told.

    {"kv_connector": "BurningConnector", "kv_connector_module_path": "burning_connector", "kv_role": "kv_both",
     "kv_connector_extra_config": {"burn_us": {"build_connector_meta": 200}, "per_cached_block_us": 0, "per_running_us": 0}}

``per_cached_block_us`` and ``per_running_us`` are burnt in ``build_connector_meta``, by the blocks of all requests that are running
and by their number. Burning holds the interpreter's lock and a core, as Python code does. What of a campaign's numbers follows from a burn
is in docs/virtual-gpu.md.
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
        self._per_block_us = float(told.get("per_cached_block_us", 0))
        self._per_running_us = float(told.get("per_running_us", 0))
        self._block_size = vllm_config.cache_config.block_size
        self._tokens: dict[str, int] = {}

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        if self._per_block_us or self._per_running_us:
            for request_id in scheduler_output.finished_req_ids:
                self._tokens.pop(request_id, None)
            for request in scheduler_output.scheduled_new_reqs:
                self._tokens[request.req_id] = request.num_computed_tokens
            for request_id, tokens in scheduler_output.num_scheduled_tokens.items():
                self._tokens[request_id] += tokens
            blocks = sum(-(-tokens // self._block_size) for tokens in self._tokens.values())
            burn(self._per_block_us * blocks + self._per_running_us * len(self._tokens))
        return super().build_connector_meta(scheduler_output)
