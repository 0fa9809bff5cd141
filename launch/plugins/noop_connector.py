"""A KV connector that does nothing: it shows the cost of vLLM's own connector framework.

vLLM loads it through ``kv_connector_module_path: noop_connector`` with this folder on PYTHONPATH. It imports
only the standard library and vLLM. It inherits ``SupportsHMA``, since vLLM from 0.22 on disables the hybrid
KV-cache manager for connectors without it, a second change beside the connector. vLLM's own
``ExampleConnector`` is no substitute: it writes KV to disk.
"""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata

try:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import SupportsHMA
except ImportError:  # 0.11.0, where every connector disables the hybrid manager

    class SupportsHMA:  # type: ignore[no-redef]
        """A placeholder for the base class that this release lacks."""


class NoOpMetadata(KVConnectorMetadata):
    """Empty metadata; the model runner requires an object."""


class NoOpConnector(KVConnectorBase_V1, SupportsHMA):
    """A connector whose hooks return at once."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any = None) -> None:
        # Releases before 0.22 may pass two arguments, later ones require three.
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
