"""Small sources with the shape of vLLM's model runners, as 0.32 has them; tests move lines about in them."""

from pathlib import Path

V2_RUNNER = """
class GPUModelRunner:
    @torch.inference_mode()
    def execute_model(self, scheduler_output, intermediate_tensors=None, dummy_run=False, is_profile=False):
        if not dummy_run:
            self.finish_requests(scheduler_output)
            if scheduler_output.total_num_scheduled_tokens == 0:
                empty_output = self.kv_connector.no_forward(scheduler_output)
                return self._merge(scheduler_output, empty_output)
        if self.is_encoder_decoder and scheduler_output.scheduled_encoder_inputs:
            return self.encode(scheduler_output)
        batch_desc = self.dispatch(scheduler_output)
        if batch_desc.cg_mode == CUDAGraphMode.FULL:
            self.kv_connector.pre_forward(scheduler_output, input_batch, attn_metadata=attn_metadata)
            model_output = self.cudagraph_manager.run_fullgraph(batch_desc)
        else:
            with set_forward_context(attn_metadata, self.vllm_config):
                self.kv_connector.pre_forward(scheduler_output, input_batch)
                if ubatch_state is not None:
                    model_output = self.ubatch_runner.run(self.model, model_inputs, ubatch_state)
                elif batch_desc.cg_mode == CUDAGraphMode.PIECEWISE:
                    model_output = self.cudagraph_manager.run_pw_graph(self.model, model_inputs)
                else:
                    model_output = self.model(**model_inputs)
        self.kv_connector.finish_forward()
        self.execute_model_state = ExecuteModelState(model_output)
        return None

    def sample_tokens(self, grammar_output):
        if self.execute_model_state is None:
            return None
        if not self.is_last_pp_rank:
            return self.with_output(self.kv_connector.post_forward(finished_req_ids))
        sampler_output, num_sampled = self.sample(hidden_states, input_batch, grammar_output)
        async_output = AsyncOutput(sampler_output)
        kv_connector_output = self.kv_connector.post_forward(finished_req_ids)
        return async_output
"""
V2_HOOKS = """
class KVConnector:
    def pre_forward(self, scheduler_output):
        pass


class ActiveKVConnector(KVConnector):
    def pre_forward(self, scheduler_output, input_batch=None, attn_metadata=None):
        if self._disabled:
            return
        metadata = scheduler_output.kv_connector_metadata
        self.kv_connector.bind_connector_metadata(metadata)
        self._pending_load_kwargs = self._build_load_kwargs(input_batch)
        if scheduler_output.has_sync_kv_loads:
            self._start_load_kv()

    @staticmethod
    def _build_load_kwargs(input_batch):
        if input_batch is None:
            return {}
        load_kwargs = dict(request_ids=input_batch.req_ids)
        return load_kwargs

    def _start_load_kv(self):
        load_kwargs = self._pending_load_kwargs
        self._pending_load_kwargs = None
        if is_forward_context_available():
            self.kv_connector.start_load_kv(get_forward_context(), **load_kwargs)
        else:
            with set_forward_context(None, self.vllm_config):
                self.kv_connector.start_load_kv(get_forward_context(), **load_kwargs)

    def finish_forward(self):
        if not self._disabled:
            self.kv_connector.finish_forward()

    def post_forward(self, finished_req_ids, wait_for_save=True):
        if self._disabled:
            return None
        if self._pending_load_kwargs is not None:
            self._start_load_kv()
        output = KVConnectorOutput()
        if wait_for_save:
            self.kv_connector.wait_for_save()
        output.finished = self.kv_connector.get_finished(finished_req_ids)
        self.kv_connector.clear_connector_metadata()
        return output

    def no_forward(self, scheduler_output):
        if self._disabled:
            return EMPTY
        self.pre_forward(scheduler_output)
        self.finish_forward()
        kv_connector_output = self.post_forward(scheduler_output.finished_req_ids, wait_for_save=False)
        return kv_connector_output
"""
V1_RUNNER = """
class GPUModelRunner(KVConnectorModelRunnerMixin):
    def execute_model(self, scheduler_output, intermediate_tensors=None):
        if has_kv_transfer_group():
            get_kv_transfer_group().handle_preemptions(scheduler_output.kv_connector_metadata)
        num_scheduled_tokens = scheduler_output.total_num_scheduled_tokens
        with record_function_or_nullcontext("preprocess"), self.synchronize_input_prep():
            if not num_scheduled_tokens:
                if not has_kv_transfer_group():
                    return EMPTY
                return self.kv_connector_no_forward(scheduler_output, self.vllm_config)
        defer_kv_connector_finalize = self.speculative_config is not None
        with (
            set_forward_context(attn_metadata, self.vllm_config),
            self.maybe_get_kv_connector_output(
                scheduler_output, defer_finalize=defer_kv_connector_finalize
            ) as kv_connector_output,
        ):
            model_output = self._model_forward(input_ids=input_ids)
        return None

    @contextmanager
    def synchronize_input_prep(self):
        yield

    def sample_tokens(self, grammar_output):
        spec_config = self.speculative_config
        sampler_output = self._sample(logits, spec_decode_metadata)
        if spec_config is not None:
            self.finalize_kv_connector()
        return sampler_output
"""
V1_HOOKS = """
class KVConnectorModelRunnerMixin:
    @staticmethod
    def kv_connector_no_forward(scheduler_output, vllm_config):
        with (
            set_forward_context(None, vllm_config),
            KVConnectorModelRunnerMixin._get_kv_connector_output(scheduler_output) as output,
        ):
            pass
        return output

    @staticmethod
    def maybe_get_kv_connector_output(scheduler_output, defer_finalize=False):
        return (
            KVConnectorModelRunnerMixin._get_kv_connector_output(scheduler_output, defer_finalize=defer_finalize)
            if has_kv_transfer_group()
            else nullcontext()
        )

    @staticmethod
    def finalize_kv_connector():
        if has_kv_transfer_group():
            get_kv_transfer_group().wait_for_save()

    @staticmethod
    @contextmanager
    def _get_kv_connector_output(scheduler_output, defer_finalize=False):
        output = KVConnectorOutput()
        kv_connector = get_kv_transfer_group()
        kv_connector.bind_connector_metadata(scheduler_output.kv_connector_metadata)
        start_after_forward = not scheduler_output.has_sync_kv_loads
        if not start_after_forward:
            kv_connector.start_load_kv(get_forward_context())
        try:
            yield output
        finally:
            if start_after_forward:
                kv_connector.start_load_kv(get_forward_context())
            if not defer_finalize:
                kv_connector.wait_for_save()
            output.finished = kv_connector.get_finished(scheduler_output.finished_req_ids)
            if not defer_finalize:
                kv_connector.clear_connector_metadata()
"""
LAYERS = """
def maybe_transfer_kv_layer(func):
    @wraps(func)
    def wrapper(*args, **kwargs):
        if not has_kv_transfer_group() or not is_v1_kv_transfer_group():
            return func(*args, **kwargs)
        attn_metadata, _, kv_cache, _ = get_attention_context(layer_name)
        connector = get_kv_transfer_group()
        if attn_metadata is None or not connector.has_connector_metadata():
            return func(*args, **kwargs)
        connector.wait_for_layer_load(layer_name)
        result = func(*args, **kwargs)
        connector.save_kv_layer(layer_name, kv_cache, attn_metadata)
        return result

    return wrapper
"""
FILES = {
    "_version.py": "__version__ = version = '0.32.0'\n",
    "v1/worker/gpu/model_runner.py": V2_RUNNER,
    "v1/worker/gpu/kv_connector.py": V2_HOOKS,
    "v1/worker/gpu_model_runner.py": V1_RUNNER,
    "v1/worker/kv_connector_model_runner_mixin.py": V1_HOOKS,
    "model_executor/layers/attention/kv_transfer_utils.py": LAYERS,
}


def release(folder: Path, **replaced: tuple[str, str]) -> Path:
    """A folder ``vllm`` with these sources.

    Args:
        replaced: by the file's name without ``.py`` and with its folder where two have the same (``gpu_model_runner``,
            ``kv_connector``): what is replaced in it, and by what.
    """
    vllm = folder / "vllm"
    for name, text in FILES.items():
        path = vllm / name
        path.parent.mkdir(parents=True, exist_ok=True)
        old, new = replaced.pop(path.stem, ("", ""))
        assert old in text, f"{name} has no {old!r}"
        path.write_text(text.replace(old, new, 1) if old else text)
    assert not replaced, f"no such file: {sorted(replaced)}"
    return vllm


# What else the virtual GPU is built on.
EXECUTOR = """
class UniProcExecutor(Executor):
    def collective_rpc(self, method, timeout=None, args=(), kwargs=None, non_block=False):
        pass

    def execute_model(self, scheduler_output, non_block=False):
        pass

    def sample_tokens(self, grammar_output, non_block=False):
        pass
"""
WORKER = """
class Worker(WorkerBase):
    def init_device(self): ...
    def load_model(self, *, load_dummy_weights=False): ...
    def determine_available_memory(self): ...
    def initialize_from_config(self, kv_cache_config): ...
    def compile_or_warm_up_model(self): ...
    def execute_model(self, scheduler_output): ...
    def sample_tokens(self, grammar_output): ...
    def _maybe_get_memory_pool_context(self, tag): ...


def init_worker_distributed_environment(vllm_config, rank, distributed_init_method=None, local_rank=-1, backend="nccl"):
    pass
"""
PLATFORM = """
class PlatformEnum(enum.Enum):
    CUDA = enum.auto()
    OOT = enum.auto()


class DeviceCapability(NamedTuple):
    major: int


class Platform:
    @classmethod
    def check_and_update_config(cls, vllm_config): ...
    @classmethod
    def get_attn_backend_cls(cls, selected_backend, head_size): ...
    @classmethod
    def support_hybrid_kv_cache(cls): ...
    @classmethod
    def support_static_graph_mode(cls): ...
"""
OUTPUTS = """
@dataclass
class ModelRunnerOutput:
    req_ids: list[str]


class AsyncModelRunnerOutput(ABC):
    def get_output(self): ...


EMPTY_MODEL_RUNNER_OUTPUT = ModelRunnerOutput(req_ids=[])
"""
AROUND = {
    "v1/executor/uniproc_executor.py": EXECUTOR,
    "v1/worker/gpu_worker.py": WORKER,
    "platforms/interface.py": PLATFORM,
    "platforms/cpu.py": "class CpuPlatform(Platform): ...",
    "v1/outputs.py": OUTPUTS,
    "v1/worker/worker_base.py": "class CompilationTimes: ...",
    "v1/kv_cache_interface.py": "class FullAttentionSpec: ...\nclass SlidingWindowSpec: ...",
    "v1/attention/backends/flash_attn.py": "class FlashAttentionBackend: ...",
    "distributed/kv_transfer/kv_connector/utils.py": "def copy_kv_blocks(src_kv_caches, dst_kv_caches): ...",
    "forward_context.py": "def set_forward_context(attn_metadata, vllm_config, num_tokens=None): ...",
}


def whole_release(folder: Path, **changes: tuple[str, str]) -> Path:
    """As ``release``, with the files around the model runners; ``changes`` of these are by the file's name as well."""
    around = {name: c for name, c in changes.items() if name not in {Path(f).stem for f in FILES}}
    vllm = release(folder, **{name: c for name, c in changes.items() if name not in around})
    connector = vllm / "v1/worker/gpu/kv_connector.py"
    connector.write_text(
        connector.read_text() + "\n\ndef get_kv_connector(vllm_config, kv_caches_dict): ...\n"
    )
    for file, source in AROUND.items():
        before, after = around.pop(Path(file).stem, ("", ""))
        assert before in source, before
        path = vllm / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.replace(before, after) if before else source)
    assert not around, f"no such file: {around}"
    return vllm
