"""A KV connector that writes down when it is called; what a test asks of it in a prompt, it does.

Loaded by vLLM through ``kv_connector_module_path: tracing_connector``. A request whose first token is ``LOADS_IN_STEP`` has 32
tokens that its own step must load, one that begins with ``LOADS_BESIDE`` has 32 that come while other requests run.
"""

from typing import Any

from noop_connector import NoOpConnector, NoOpMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

LOADS_IN_STEP, LOADS_BESIDE = 7, 8
LOADED_TOKENS = 32

# Hooks in the order in which they were called, with what the model runner had done by then; filled by ``trace_hooks``.
CALLS: list[str] = []
SCHEDULERS = "scheduler: "

HOOKS = (
    "get_num_new_matched_tokens",
    "update_state_after_alloc",
    "build_connector_meta",
    "update_connector_output",
    "request_finished",
    "request_finished_all_groups",
    "handle_preemptions",
    "bind_connector_metadata",
    "start_load_kv",
    "wait_for_layer_load",
    "save_kv_layer",
    "finish_forward",
    "wait_for_save",
    "get_transfer_results",
    "get_finished",
    "get_block_ids_with_load_errors",
    "get_kv_connector_stats",
    "get_kv_connector_kv_cache_events",
    "build_connector_worker_meta",
    "clear_connector_metadata",
)


class LoadingMetadata(NoOpMetadata):
    """The requests whose loads begin with this step."""

    def __init__(self, requests: list[str]) -> None:
        self.requests = requests


class LoadingConnector(NoOpConnector):
    """Claims to have tokens, loads nothing, and says a step later that it has."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._to_load: list[str] = []
        self._loading: list[str] = []

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        first = request.prompt_token_ids[0]
        if num_computed_tokens or first not in (LOADS_IN_STEP, LOADS_BESIDE):
            return 0, False
        return LOADED_TOKENS, first == LOADS_BESIDE

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens and request.prompt_token_ids[0] == LOADS_BESIDE:
            self._to_load.append(request.request_id)

    def build_connector_meta(self, scheduler_output: Any) -> LoadingMetadata:
        requests, self._to_load = self._to_load, []
        return LoadingMetadata(requests)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._loading += self._get_connector_metadata().requests

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str] | None]:
        loaded, self._loading = self._loading, []
        return None, set(loaded) or None


def _traced(name: str) -> Any:
    def hook(self: Any, *arguments: Any, **named: Any) -> Any:
        # vLLM has two connectors of one class in this process, and asks both for their statistics.
        CALLS.append(name if self.role == KVConnectorRole.WORKER else SCHEDULERS + name)
        return getattr(super(TracingConnector, self), name)(*arguments, **named)

    hook.__name__ = name
    return hook


class TracingConnector(LoadingConnector):
    """Every hook says its name first."""


for _name in HOOKS:
    if hasattr(LoadingConnector, _name):
        setattr(TracingConnector, _name, _traced(_name))
