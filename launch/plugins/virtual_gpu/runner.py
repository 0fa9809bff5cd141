"""The model runner of a device that is a clock: vLLM's steps and connector calls, without a model.

Which connector hooks run, and their order, is vLLM's own code: ``ActiveKVConnector`` under model runner V2,
``KVConnectorModelRunnerMixin`` under V1. This file calls it where a model runner does.
``tests/vllm/test_hook_order.py`` compares traces of both for each supported release.
"""

from types import SimpleNamespace
from typing import Any

from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group
from vllm.forward_context import set_forward_context

from virtual_gpu.batches import Batch, Batches
from virtual_gpu.clock import Clock, Launched
from virtual_gpu.device import Device
from virtual_gpu.kv_cache import allocate, narrow, true_specs
from virtual_gpu.outputs import ClockedOutput, model_runner_output
from virtual_gpu.places import Layers, largest_full_graph, pre_forward_of


class ClockModelRunner:
    """The model runner that vLLM's GPU worker uses."""

    is_pooling_model = False

    def __init__(self, vllm_config: Any, device: Device) -> None:
        self.vllm_config = vllm_config
        self.true_specs = true_specs(vllm_config)
        self._device = device
        self.clock = Clock(device.clock_log)
        self._batches = Batches()
        self._connector: Any = None
        self._v2 = vllm_config.use_v2_model_runner
        self._pending: tuple[Any, Batch, Launched, Any] | None = None
        self._largest_graph = largest_full_graph(vllm_config)
        self._pre_forward: Any = None
        self._layers = Layers([])
        vocabulary = vllm_config.model_config.get_vocab_size()
        # The middle half of the vocabulary: special tokens are at either end.
        self._first_token, self._tokens = vocabulary // 4, max(1, vocabulary // 2)

    def get_kv_cache_spec(self) -> dict[str, Any]:
        return narrow(self.true_specs)

    def initialize_kv_cache(self, kv_cache_config: Any, **kwargs: Any) -> None:
        """Allocate, and hand the tensors to the connector, as V2 and V1 do at this place."""
        caches = allocate(kv_cache_config, self.vllm_config)
        self._layers = Layers([name for name in self.true_specs if name in caches])
        known = self.vllm_config.compilation_config.static_forward_context
        known.update((name, SimpleNamespace(kv_cache=caches[name])) for name in self._layers.names)
        if self._v2:
            from vllm.v1.worker.gpu.kv_connector import get_kv_connector

            self._connector = get_kv_connector(self.vllm_config, caches)
            self._pre_forward = pre_forward_of(self._connector)
        elif has_kv_transfer_group():
            from vllm.distributed.kv_transfer.kv_connector.utils import copy_kv_blocks

            get_kv_transfer_group().register_kv_caches(caches)
            get_kv_transfer_group().set_host_xfer_buffer_ops(copy_kv_blocks)

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        if not self._v2 and has_kv_transfer_group():
            # V1 does this first, also in a step without tokens; V2 does it in ``pre_forward``.
            get_kv_transfer_group().handle_preemptions(scheduler_output.kv_connector_metadata)
        batch = self._batches.batch(scheduler_output)
        if not batch.num_tokens:
            return self._no_forward(scheduler_output)
        host = self._device.host
        if host.before_launch_us or host.before_launch_per_seq_us:
            self.clock.source.busy(host.before_launch_us + host.before_launch_per_seq_us * len(batch.req_ids))
        forward = self._forward_v2 if self._v2 else self._forward_v1
        step, kv_output = forward(scheduler_output, batch)
        self._pending = (scheduler_output, batch, step, kv_output)
        return None

    def sample_tokens(self, grammar_output: Any) -> Any:
        if self._pending is None:
            return None
        scheduler_output, batch, step, kv_output = self._pending
        self._pending = None
        if self._device.host.after_launch_us:
            self.clock.source.busy(self._device.host.after_launch_us)
        output = model_runner_output(batch.req_ids)
        result = ClockedOutput(output, self._sampled(batch), self.clock, step)
        if self._v2:
            kv_output = self._connector.post_forward(scheduler_output.finished_req_ids)
        output.kv_connector_output = kv_output
        return result

    def _no_forward(self, scheduler_output: Any) -> Any:
        if self._v2:
            return self._connector.no_forward(scheduler_output)
        from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT
        from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin

        if not has_kv_transfer_group():
            return EMPTY_MODEL_RUNNER_OUTPUT
        return KVConnectorModelRunnerMixin.kv_connector_no_forward(scheduler_output, self.vllm_config)

    def _forward_v2(self, scheduler_output: Any, batch: Batch) -> tuple[Launched, None]:
        """Run V2's forward: unneeded loads start after its launch, the connector's rest after sampling."""
        if self._runs_as_one_graph(batch):
            self._pre_forward(scheduler_output, batch, self._layers.metadata)
            step = self._launch(batch)
        else:
            with self._forward_context(batch):
                self._pre_forward(scheduler_output, batch, None)
                step = self._launch(batch)
                self._run_layers(step)
        if hasattr(self._connector, "finish_forward"):
            self._connector.finish_forward()
        return step, None

    def _forward_v1(self, scheduler_output: Any, batch: Batch) -> tuple[Launched, Any]:
        """Run V1's forward: the connector's part ends in ``execute_model``, before sampling is launched."""
        from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin

        with (
            self._forward_context(batch),
            KVConnectorModelRunnerMixin.maybe_get_kv_connector_output(scheduler_output) as kv_output,
        ):
            step = self._launch(batch)
            if not self._runs_as_one_graph(batch):
                self._run_layers(step)
        return step, kv_output

    def _forward_context(self, batch: Batch) -> Any:
        return set_forward_context(
            self._layers.metadata, self.vllm_config, num_tokens=batch.num_tokens, slot_mapping={}
        )

    def _launch(self, batch: Batch) -> Launched:
        step = self._device.step
        return self.clock.launch(
            step.duration_ns(batch.prefill_tokens, batch.decode_seqs, batch.context_tokens)
        )

    def _run_layers(self, step: Launched) -> None:
        """Run the layers' hooks, as the host does for a step that is not one CUDA graph.

        Layers check for a connector even if there is none.
        """
        self._layers.run()
        self.clock.host_is_behind(step)

    def _runs_as_one_graph(self, batch: Batch) -> bool:
        """Return whether CUDA replays the step as one captured graph: decode only, of a captured size."""
        return batch.uniform_decode and batch.num_tokens <= self._largest_graph

    def _sampled(self, batch: Batch) -> list[list[int]]:
        """Invent tokens from the position alone, so that every configuration gives the same answers."""
        return [
            [self._first_token + position % self._tokens] if sampled else []
            for sampled, position in zip(batch.sampled, batch.positions, strict=True)
        ]

    def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)

    def update_max_model_len(self, max_model_len: int) -> None:
        """Do nothing: no size here depends on it."""

    def reset_mm_cache(self) -> None:
        """Do nothing: inputs are text only."""

    def reset_encoder_cache(self) -> None:
        """Do nothing: there is no encoder."""

    def shutdown(self) -> None:
        self.clock.flush()
