"""A KV connector that does nothing, so that what is left is the cost of vLLM's own connector framework.

Loaded by vLLM through ``kv_connector_module_path: noop_connector`` with this folder on PYTHONPATH;
imports the standard library and vLLM only. ``SupportsHMA`` is inherited because vLLM from 0.22 on
switches its hybrid KV-cache manager off for connectors that do not support it, which would be a
second change beside the connector. vLLM's own ``ExampleConnector`` is no substitute: it writes KV to disk.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import SupportsHMA
except ImportError:  # 0.11.0, where every connector switches the hybrid manager off

    class SupportsHMA:  # type: ignore[no-redef]
        """Stands for what this release does not have."""


class NoOpMetadata(KVConnectorMetadata):
    """Empty; the model runner insists on an object."""


class NoOpConnector(KVConnectorBase_V1, SupportsHMA):
    """Every hook returns at once."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        # Releases before 0.22 may pass two arguments, later ones insist on three.
        try:
            super().__init__(vllm_config, role, kv_cache_config)
        except TypeError:
            super().__init__(vllm_config, role)

    # Scheduler side.

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        return 0, False

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        return

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return NoOpMetadata()

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    # Worker side.

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        return

    def wait_for_layer_load(self, layer_name: str) -> None:
        return

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        return

    def wait_for_save(self) -> None:
        return

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, None]:
        return None, None
