"""Connectors that copy between device and host, through vLLM's engine on a virtual GPU, in this process; prints what each did.

    python copying_connectors.py MODEL STORE [refused]

MODEL is a folder with ``config.json``, STORE one for files. Of each connector: one prompt, the same once more after the device's prefix
cache was emptied, then another one twice over a link that takes no time. Prints one JSON object: by connector how long its worker's hooks
made the engine's thread wait for the clock, how many bytes it copied, how many tokens came from its store, and how large that is.
"""

import gc
import importlib.util
import json
import os
import sys
import time
from collections import defaultdict
from typing import Any

MODEL, STORE = sys.argv[1:3]
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch  # noqa: E402
import virtual_gpu.clock  # noqa: E402
from virtual_gpu.stand_ins import stand_in_for_the_device  # noqa: E402
from virtual_gpu.streams import ComputeStream, Scale, Stream, Streams  # noqa: E402
from vllm import EngineArgs, SamplingParams  # noqa: E402
from vllm.config import KVTransferConfig  # noqa: E402
from vllm.distributed.kv_transfer import get_kv_transfer_group  # noqa: E402
from vllm.v1.engine.llm_engine import LLMEngine  # noqa: E402

PROMPT_TOKENS, HOST_BYTES = 512, 8 << 20
# At most so many requests are sent behind a copy; a busy host runs the thread that makes it late.
BEHIND = 40
EXTRA: dict[str, dict[str, Any]] = {
    "ExampleConnector": {"shared_storage_path": STORE},
    "OffloadingConnector": {"cpu_bytes_to_use": HOST_BYTES},
    "SimpleCPUOffloadConnector": {"cpu_bytes_to_use": HOST_BYTES},
    "LMCacheConnectorV1": {},
}
HOOKS = ("handle_preemptions", "start_load_kv", "wait_for_save", "save_kv_layer", "get_finished")
waited_ns: dict[str, int] = defaultdict(int)
copied_bytes: list[int] = []
hook: list[str] = []


def note_waits() -> None:
    """What a hook asks the clock to wait for, however late the thread then wakes up."""
    sleep_until = virtual_gpu.clock.Clock.sleep_until

    def noted(self: Any, t_ns: int) -> None:
        if hook:
            waited_ns[hook[-1]] += max(0, t_ns - time.monotonic_ns())
        sleep_until(self, t_ns)

    virtual_gpu.clock.Clock.sleep_until = noted


def note_copies() -> None:
    for kind in (Stream, ComputeStream):

        def noted(self: Any, true_bytes: int, _copy: Any = kind.copy) -> None:
            copied_bytes.append(true_bytes)
            _copy(self, true_bytes)

        kind.copy = noted


def note_hooks(connector: Any) -> None:
    for name in HOOKS:
        original = getattr(connector, name)

        def noted(*args: Any, _name: str = name, _original: Any = original, **kwargs: Any) -> Any:
            hook.append(_name)
            try:
                return _original(*args, **kwargs)
            finally:
                hook.pop()

        setattr(connector, name, noted)


def note_loaded(connector: Any) -> list[int]:
    """Tokens that the scheduler has a request load from the connector's store."""
    loaded: list[int] = []
    original = connector.update_state_after_alloc

    def noted(request: Any, blocks: Any, num_external_tokens: int, **kwargs: Any) -> Any:
        loaded.append(num_external_tokens)
        return original(request, blocks, num_external_tokens, **kwargs)

    connector.update_state_after_alloc = noted
    return loaded


def engine(connector: str) -> Any:
    return LLMEngine.from_engine_args(
        EngineArgs(
            model=MODEL,
            skip_tokenizer_init=True,
            max_model_len=1024,
            max_num_batched_tokens=1024,
            max_num_seqs=8,
            enable_prefix_caching=True,
            async_scheduling=False,
            kv_transfer_config=KVTransferConfig(
                kv_connector=connector, kv_role="kv_both", kv_connector_extra_config=EXTRA[connector]
            ),
        ),
        enable_multiprocessing=False,
    )


def answer(served: Any, name: str, prompt: list[int], tokens: int) -> None:
    parameters = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
    served.add_request(name, {"prompt_token_ids": prompt}, parameters)
    while served.has_unfinished_requests():
        served.step()


def has_stores_left(served: Any) -> bool:
    connector = served.engine_core.engine_core.scheduler.connector
    return bool(connector.has_pending_push_work())


def one_prompt_twice(served: Any, loaded: list[int], first: int, copy_s: float) -> dict[str, Any]:
    """Requests of less than a block, behind the end of a copy, let the connector hear of that and store nothing."""
    prompt = [first, *range(100, 99 + PROMPT_TOKENS)]
    found = {}
    for which in ("first", "again"):
        waited_ns.clear()
        loaded.clear()
        copied_bytes.clear()
        answer(served, f"{which} {first}", prompt, 4)
        found[f"{which}_waited_s"] = {name: ns / 1e9 for name, ns in waited_ns.items() if ns}
        found[f"{which}_loaded"] = sum(loaded)
        for k in range(BEHIND):
            time.sleep(copy_s)
            answer(served, f"{k} after {which} {first}", [first, 7, k], 2)
            if k and not has_stores_left(served):
                break
        found[f"{which}_copied_bytes"] = sum(copied_bytes)
        served.reset_prefix_cache()
    return found


def launch(name: str) -> dict[str, Any]:
    served = engine(name)
    core = served.engine_core.engine_core
    note_hooks(get_kv_transfer_group())
    loaded = note_loaded(core.scheduler.connector)
    streams = core.model_executor.driver_worker.worker.streams
    found = one_prompt_twice(served, loaded, 20, copy_s=0.15)
    streams.host_link_bytes_per_s = 10**18
    at_once = one_prompt_twice(served, loaded, 21, copy_s=0.0)
    found |= {
        "at_once": at_once,
        "device_blocks": core.scheduler.kv_cache_config.num_blocks,
        "host_blocks": host_blocks(name, core.scheduler.connector),
    }
    served.engine_core.shutdown()
    del served, core, streams
    gc.collect()
    return found


def host_blocks(name: str, connector: Any) -> int | None:
    if name == "OffloadingConnector":
        return connector.connector_scheduler.manager._num_chunks
    if name == "SimpleCPUOffloadConnector":
        return connector.scheduler_manager.cpu_block_pool.num_gpu_blocks
    return None


def refused(name: str, extra: dict[str, Any]) -> str:
    """What starting a connector says with settings by which it copies in a way that has no stand-in."""
    usual, EXTRA[name] = EXTRA[name], extra
    try:
        engine(name)
    except Exception as error:  # noqa: BLE001 - vLLM wraps what a connector raises
        return repr(error)
    finally:
        EXTRA[name] = usual
    return "it started"


def refused_settings() -> dict[str, str]:
    disk = {"kv_offload_backend": "disk", "disk_path": STORE}
    found = {"SimpleCPUOffloadConnector": refused("SimpleCPUOffloadConnector", disk)}
    if importlib.util.find_spec("lmcache"):
        found["LMCacheConnectorV1"] = refused("LMCacheConnectorV1", {"lmcache.use_layerwise": True})
    return found


def refusal() -> str:
    """Of a connector that copies, over a link that the document does not give."""
    config: Any = type("Config", (), {"kv_transfer_config": {"kv_connector": "OffloadingConnector"}})
    try:
        stand_in_for_the_device(config, Streams(None, 0), Scale(1, 1))
    except RuntimeError as error:
        return str(error)
    return ""


def main() -> None:
    # vLLM empties the device's cache when an engine ends, and here another one follows in the same process.
    torch.accelerator.empty_cache = torch.accelerator.empty_host_cache = lambda: None
    if sys.argv[3:] == ["refused"]:
        # In a process of its own: settings and stand-ins of a connector stay in one.
        print("COPIES " + json.dumps(refused_settings()), flush=True)
        os._exit(0)
    note_waits()
    note_copies()
    found: dict[str, Any] = {"refusal": refusal()}
    for name in EXTRA:
        if name != "LMCacheConnectorV1" or importlib.util.find_spec("lmcache"):
            found[name] = launch(name)
    print("COPIES " + json.dumps(found), flush=True)
    # LMCache leaves threads behind that nobody can end.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
