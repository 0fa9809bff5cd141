"""ExampleConnector, vLLM's debugging connector: its own code, on files with narrow heads.

On a GPU each layer's ``.cpu()`` waits until the device has finished and copied that layer. A load from a
file's memory, which is not pinned, waits likewise. The engine's thread does so here.
"""

from typing import Any

from virtual_gpu.kv_cache import HEAD_SIZE, HEADS
from virtual_gpu.stand_ins.replacing import replace, said_of
from virtual_gpu.streams import Scale, Streams


def put_in(streams: Streams, scale: Scale) -> str:
    from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector

    save, load = ExampleConnector.save_kv_layer, ExampleConnector.start_load_kv

    def wait_for_copy(slots: int, layer: Any) -> None:
        streams.compute.copy(scale.true(slots * 2 * HEADS * HEAD_SIZE * layer.element_size()))
        streams.compute.synchronize()

    def save_kv_layer(self: Any, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        for request in self._get_connector_metadata().requests:
            if request.is_store:
                wait_for_copy(len(request.slot_mapping), kv_layer)
        save(self, layer_name, kv_layer, attn_metadata, **kwargs)

    def start_load_kv(self: Any, forward_context: Any, **kwargs: Any) -> None:
        load(self, forward_context, **kwargs)
        loading = [r for r in self._get_connector_metadata().requests if not r.is_store]
        if not loading or forward_context.attn_metadata is None:
            return
        for request in loading:
            for layer in forward_context.no_compile_layers.values():
                wait_for_copy(len(request.slot_mapping), layer.kv_cache)

    replace(ExampleConnector, save_kv_layer=save_kv_layer, start_load_kv=start_load_kv)
    return (
        f"{said_of(scale, streams)}; its files hold {scale.narrow_bytes / scale.true_bytes:.3g} of the bytes"
    )
