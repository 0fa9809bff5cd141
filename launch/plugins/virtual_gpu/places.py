"""Calls vLLM's own connector code: before the forward, and in each attention layer."""

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from vllm.model_executor.layers.attention.kv_transfer_utils import maybe_transfer_kv_layer

from virtual_gpu.batches import Batch


@maybe_transfer_kv_layer
def attention(layer_name: str) -> None:
    """Run an attention layer's hooks as vLLM wraps them, with no computation."""


class Layers:
    """The attention layers of a model, in order.

    Attributes:
        metadata: by layer; connectors skip a step without any. A GPU's metadata serves its kernels, so it is
            empty here.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.metadata = dict.fromkeys(names, SimpleNamespace())

    def run(self) -> None:
        for name in self.names:
            attention(name)


def pre_forward_of(connector: Any) -> Callable[[Any, Batch, Any], None]:
    """Wrap ``connector.pre_forward`` of this release's model runner V2.

    Returns:
        A function of (scheduler's output, batch, metadata or None).
    """
    call = connector.pre_forward
    parameters = inspect.signature(call).parameters
    takes_batch = "input_batch" in parameters  # 0.32
    takes_names = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())  # 0.30 and 0.31

    def pre_forward(scheduler_output: Any, batch: Batch, metadata: Any) -> None:
        given: dict[str, Any] = {}
        if takes_batch:
            given = {"input_batch": batch}
        elif takes_names:
            names = {"request_state_indices": batch.idx_mapping, "request_ids": batch.req_ids}
            given = {**names, "num_tokens": batch.num_tokens}
        if given and metadata is not None:
            given["attn_metadata"] = metadata
        call(scheduler_output, **given)

    return pre_forward


def largest_full_graph(vllm_config: Any) -> int:
    """Return the sequences of the largest decode step that CUDA replays as one captured graph; 0 if none.

    Both model runners capture such graphs for the resolved sizes up to ``max_num_seqs``.
    """
    compilation = vllm_config.compilation_config
    mode = compilation.cudagraph_mode
    if mode is None or not mode.has_full_cudagraphs():
        return 0
    most = vllm_config.scheduler_config.max_num_seqs
    return max((size for size in compilation.cudagraph_capture_sizes or () if size <= most), default=0)
