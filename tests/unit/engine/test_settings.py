"""What an engine says it resolved, in records and log: settings and the flags that take plain vLLM there, transports, whether it recorded steps."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from stand_in_vllm import SCHEDULER, stand_in, tree, write_blocks

from connector_tax.base.config import EngineConfig, load_campaign
from connector_tax.base.documents.identity import differences
from connector_tax.base.errors import EngineError
from connector_tax.run.engine.settings import (
    PATCHER,
    CameUpWith,
    matching_flags,
    pinned,
    recorder_heard,
    resolved_settings,
    revert,
    step_timing_of,
    transports_of,
)

LAYOUT_LOG = """
(EngineCore pid=1) INFO [utils.py:347] Using LBHNC KV cache layout.
(Worker pid=2) INFO [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends: [...]
(EngineCore pid=1) INFO [kv_cache_utils.py:2327] GPU KV cache size: 2,097,152 tokens, Maximum concurrency
"""


def test_settings_come_from_the_records_header_and_the_log(tmp_path: Path) -> None:
    header = {"kind": "header", "process": "scheduler", "pid": 1}
    settings = {"cache_config.block_size": 16, "model_config.seed": None}
    path = tmp_path / "engine_step.scheduler.1.jsonl"
    path.write_text(json.dumps({**header, "settings": settings}) + "\n" + json.dumps(header) + "\n")
    assert resolved_settings(tmp_path / "engine_step.jsonl", LAYOUT_LOG) == {
        "cache_config.block_size": 16,
        "log.kv_cache_layout": "LBHNC",
        "log.attention_backend": "FLASH_ATTN",
        "log.kv_cache_tokens": "2,097,152",
    }


def test_a_layout_that_a_connector_of_older_releases_asks_for_is_told() -> None:
    """Up to 0.28 NIXL says it, and nobody says the default."""
    said = "INFO [connector.py:159] NixlConnector setting KV cache layout to HND for better xfer performance."
    assert resolved_settings(None, said) == {"log.kv_cache_layout": "HND"}
    by_variable = "`VLLM_KV_CACHE_LAYOUT` environment variable detected. Setting KV cache layout to NHD."
    assert resolved_settings(None, by_variable) == {"log.kv_cache_layout": "NHD"}


# As releases word it, in the order in which an H100 with a mixture of experts logs it.
MOE_0_25 = """
(APIServer pid=1) INFO 11-27 10:00:01 [vllm.py:1011] Asynchronous scheduling is enabled.
(EngineCore pid=2) INFO 11-27 10:00:08 [core.py:114] Initializing a V1 LLM engine (v0.25.1) with config: model='/models/m', moe_backend='auto'
(EngineCore pid=2) INFO 11-27 10:00:11 [gpu_model_runner.py:4901] Starting to load model /models/m...
(EngineCore pid=2) INFO 11-27 10:00:11 [unquantized.py:266] Using TRITON Unquantized MoE backend out of potential backends: ['FlashInfer TRTLLM', 'TRITON'].
(EngineCore pid=2) INFO 11-27 10:00:11 [cuda.py:416] Using AttentionBackendEnum.FLASH_ATTN backend.
(EngineCore pid=2) INFO 11-27 10:00:11 [flash_attn.py:776] Using FlashAttention version 3
(EngineCore pid=2) WARNING 11-27 10:00:19 [fused_moe.py:1090] Using default MoE config. Performance might be sub-optimal! Config file not found at /x/configs/E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json
(EngineCore pid=2) INFO 11-27 10:00:23 [kv_cache_utils.py:2258] GPU KV cache size: 161,040 tokens, Maximum concurrency for 40,000 tokens per request: 4.03x
"""
DENSE_0_25 = """
(APIServer pid=1) INFO 11-27 10:00:01 [vllm.py:1011] Asynchronous scheduling is disabled.
(EngineCore pid=2) INFO 11-27 10:00:09 [gpu_worker.py:500] Using V2 Model Runner
(EngineCore pid=2) INFO 11-27 10:00:11 [cuda.py:482] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLEX_ATTENTION'].
"""
MOE_0_32 = """
(EngineCore pid=2) INFO 11-27 10:00:09 [gpu_worker.py:518] Using V2 Model Runner
(EngineCore pid=2) INFO 11-27 10:00:10 [selector.py:131] Using FLASH_ATTN MLA prefill backend.
(EngineCore pid=2) INFO 11-27 10:00:10 [unquantized.py:529] Using TritonExperts MoE backend
(EngineCore pid=2) INFO 11-27 10:00:11 [cuda.py:506] Using FLASH_ATTN_MLA attention backend out of potential backends: ['FLASH_ATTN_MLA'].
(EngineCore pid=2) INFO 11-27 10:00:19 [fused_moe.py:1150] Using configuration from /home/me/my vllm/fused_moe/configs/E=128,N=768,device_name=NVIDIA_H200.json for MoE layer.
"""
V1_0_32 = "(APIServer pid=1) WARNING [vllm.py:725] Model Runner V2 requires Triton; using the V1 model runner instead."
ROCM = "(EngineCore pid=2) INFO 11-27 10:00:11 [rocm.py:749] Using TRITON_ATTN backend (selected via --attention-backend)."
OLD = "INFO 11-27 10:00:11 [cuda.py:303] Using Flash Attention backend on V1 engine."
EARLIER_MOE = "INFO 11-27 10:00:11 [unquantized.py:99] Using TRITON backend for Unquantized MoE"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (
            MOE_0_25,
            {
                "log.attention_backend": "FLASH_ATTN",
                "log.kv_cache_tokens": "161,040",
                "log.model_runner": "V1",
                "log.moe_config": "default",
                "scheduler_config.async_scheduling": True,
            },
        ),
        (
            DENSE_0_25,
            {
                "log.attention_backend": "FLASH_ATTN",
                "log.model_runner": "V2",
                "scheduler_config.async_scheduling": False,
            },
        ),
        (
            MOE_0_32,
            {
                "log.attention_backend": "FLASH_ATTN_MLA",
                "log.model_runner": "V2",
                "log.moe_config": "configs/E=128,N=768,device_name=NVIDIA_H200.json",
            },
        ),
        (V1_0_32, {"log.model_runner": "V1"}),
        (ROCM, {"log.attention_backend": "TRITON_ATTN"}),
        (OLD, {"log.attention_backend": "Flash"}),
        (EARLIER_MOE, {}),
    ],
)
def test_a_log_tells_scheduling_backend_runner_and_tiles(log: str, told: dict[str, Any]) -> None:
    """Of the backends only that of attention; MoE layers have one of their own, logged in almost the same words."""
    assert resolved_settings(None, log) == told


def test_the_engines_own_word_goes_before_its_log(tmp_path: Path) -> None:
    header = {"kind": "header", "settings": {"scheduler_config.async_scheduling": False}}
    (tmp_path / "s.scheduler.1.jsonl").write_text(json.dumps(header) + "\n")
    found = resolved_settings(tmp_path / "s.jsonl", "Asynchronous scheduling is enabled.")
    assert found == {"scheduler_config.async_scheduling": False}


def test_only_what_differs_is_a_difference() -> None:
    found = differences({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 9})
    assert found == {"b": {"plain": 2, "own": 9}, "c": {"plain": 3, "own": None}}


def test_flags_take_plain_to_where_the_connector_is() -> None:
    changes = differences(
        {"scheduler_config.disable_hybrid_kv_cache_manager": False},
        {
            "scheduler_config.disable_hybrid_kv_cache_manager": True,
            "scheduler_config.async_scheduling": False,
            "compilation_config.cudagraph_mode": "CUDAGraphMode.PIECEWISE",
            "log.kv_cache_layout": "HND",
            "parallel_config.distributed_executor_backend": "mp",
        },
    )
    arguments, environment, unmatched = matching_flags(changes)
    assert arguments == [
        *("--compilation-config", '{"cudagraph_mode": "PIECEWISE"}'),
        "--no-async-scheduling",
        "--disable-hybrid-kv-cache-manager",
    ]
    assert environment == {"VLLM_KV_CACHE_LAYOUT": "HND"}
    assert unmatched == ["parallel_config.distributed_executor_backend"]


def test_another_number_of_kv_blocks_is_no_difference_but_is_pinned() -> None:
    """A connector that holds GPU memory leaves fewer; a matched launch gets the same room all the same."""
    plain = {"cache_config.num_gpu_blocks": 100, "log.kv_cache_tokens": "1,600"}
    own = {"cache_config.num_gpu_blocks": 90, "log.kv_cache_tokens": "1,440"}
    assert differences(plain, own) == {}
    assert matching_flags(pinned(plain, own)) == (["--num-gpu-blocks-override", "90"], {}, [])
    assert pinned(plain, plain) == {}


GLOG = "I20261120 10:00:00.123456 4711 "
VLLM = "(Worker pid=9) INFO 11-20 10:00:00 "
ASKED = f"{VLLM}[mooncake_connector.py:1208] The Mooncake Transfer Engine is using rdma as its protocol."
HCAS = GLOG + "transfer_engine_impl.cpp:273] Topology discovery complete. Found {} HCAs."
RPC = f"{GLOG}transfer_engine_impl.cpp:182] Transfer Engine RPC using P2P handshake, listening on 10.0.0.1:15428"
TCP = f"{GLOG}tcp_transport.cpp:343] TcpTransport: listen on port 12345"
BOOTSTRAP = f"{VLLM}[mooncake_utils.py:108] Mooncake Bootstrap Server started at 0.0.0.0:8998"


def test_a_silent_fall_back_to_tcp_is_tcp() -> None:
    """vLLM asked for rdma and Mooncake found no adapter; neither says that it is anything but well."""
    found = transports_of("\n".join([ASKED, RPC, HCAS.format(0), TCP, BOOTSTRAP]))
    assert found == CameUpWith(
        transports={"mooncake": ("tcp",)},
        side_channels={
            "mooncake_rpc": ("10.0.0.1:15428",),
            "mooncake_tcp_port": ("12345",),
            "mooncake_bootstrap": ("0.0.0.0:8998",),
        },
    )


@pytest.mark.parametrize(
    ("line", "transport"),
    [
        ("transfer_engine_impl.cpp:429] installTransport, type=rdma", "rdma"),
        ("transfer_engine_impl.cpp:395] Using TCP transport (no HCA detected)", "tcp"),
        ("transfer_engine_impl.cpp:378] Using NVLink transport (forced or no HCA detected)", "nvlink"),
        ("transfer_engine_py.cpp:266] EFA transport installed successfully", "efa"),
    ],
)
def test_each_way_in_which_mooncake_says_it(line: str, transport: str) -> None:
    assert transports_of(GLOG + line).transports == {"mooncake": (transport,)}


def test_several_ranks_and_devices_are_named_once() -> None:
    devices = [f"{GLOG}rdma_context.cpp:286] RDMA device: mlx5_{k}, LID: 0" for k in (0, 1)]
    installed = f"{GLOG}transfer_engine_impl.cpp:429] installTransport, type=rdma"
    assert transports_of("\n".join([*devices, installed, installed])).transports == {"mooncake": ("rdma",)}


def test_nixls_backend() -> None:
    line = "2026-11-20 10:00:00 NIXL INFO    _api.py:405 Backend UCX was instantiated"
    assert transports_of(line).transports == {"nixl": ("ucx",)}


@pytest.mark.parametrize(
    "log",
    [
        ASKED,
        HCAS.format(2),
        f"E{GLOG[1:]}transfer_engine_impl.cpp:300] Failed to install TCP transport",
        f"{GLOG}transfer_engine_py.cpp:271] Installing TCP transport (auto_discover disabled in EFA build)",
    ],
)
def test_what_was_only_asked_for_or_failed_is_not_known(log: str) -> None:
    assert transports_of(log) == CameUpWith(None, None)


CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    return stand_in(tmp_path / "vllm")


@pytest.fixture
def engine(vllm: Path, tmp_path: Path) -> EngineConfig:
    """An engine whose interpreter, asked for vLLM's folder, names the stand-in."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "Welcome to the cluster"\necho "$3{vllm}"\necho Bye\n')
    python.chmod(0o755)
    return replace(load_campaign(CONFIG / "demo.yaml").engine, kind="vllm", python=str(python))


def state_of(engine: EngineConfig) -> str:
    """``patched``, ``unpatched`` or ``half``, as the script reports it."""
    command = [sys.executable, str(PATCHER), "--engine-python", str(engine.python), "--status"]
    done = subprocess.run(command, capture_output=True, text=True)
    return str(json.loads(done.stdout)["state"])


def test_asking_changes_nothing(engine: EngineConfig, vllm: Path) -> None:
    before = tree(vllm)
    assert step_timing_of(engine).available
    assert state_of(engine) == "unpatched"
    assert revert(engine) == f"{vllm} holds nothing of connector-tax"
    assert tree(vllm) == before


def test_a_vllm_that_does_not_fit_is_a_reason_and_no_error(engine: EngineConfig, vllm: Path) -> None:
    """The campaign goes on without step records, and says why."""
    (vllm / SCHEDULER).write_text("class Another: ...\n")
    timing = step_timing_of(engine)
    assert not timing.available
    assert "has no 'class Scheduler'" in str(timing.reason)


def test_what_an_earlier_version_wrote_is_in_the_way_until_it_is_taken_out(
    engine: EngineConfig, vllm: Path
) -> None:
    before = tree(vllm)
    write_blocks(vllm)
    assert state_of(engine) == "patched"
    with pytest.raises(EngineError, match="an earlier version of connector-tax wrote its step timing into"):
        step_timing_of(engine)
    revert(engine)
    assert tree(vllm) == before


def test_a_revert_that_could_not_look_is_an_error(engine: EngineConfig, tmp_path: Path) -> None:
    """Nobody looked at vLLM's files, so nobody says what is in them."""
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(EngineError, match="does not run Python code"):
        revert(engine)


def test_step_timing_can_be_switched_off(engine: EngineConfig) -> None:
    timing = step_timing_of(replace(engine, step_timing=False))
    assert (timing.available, timing.reason) == (False, "engine.step_timing is false")


def test_an_engine_that_recorded_no_step_has_no_step_timing(tmp_path: Path) -> None:
    """It fits by the source files, and something else was imported: the engine's own word counts."""
    log, stderr = tmp_path / "steps" / "engine_step.jsonl", tmp_path / "vllm_stderr.log"
    log.parent.mkdir()
    heard = recorder_heard(log, stderr)
    assert (heard.available, heard.reason) == (
        False,
        "the engine served requests and recorded no step; it says: nothing about step timing in its log",
    )
    stderr.write_text(
        "(EngineCore pid=7) connector-tax: no step records: x.Scheduler has no schedule (process 7)\n"
    )
    assert str(recorder_heard(log, stderr).reason).endswith(
        "it says: no step records: x.Scheduler has no schedule (process 7)"
    )
    (log.parent / "engine_step.scheduler.7.jsonl").write_text("{}\n")
    assert recorder_heard(log, stderr).available


def header(process: str, *hooks: str) -> str:
    return json.dumps({"kind": "header", "process": process, "pid": 7, "hooks": hooks}) + "\n"


def test_a_connector_whose_hooks_nobody_recorded_was_not_heard(tmp_path: Path) -> None:
    """Its scheduler's steps are there; plain, of which nothing else is wanted, was heard."""
    log, stderr = tmp_path / "steps" / "engine_step.jsonl", tmp_path / "vllm_stderr.log"
    log.parent.mkdir()
    stderr.write_text(
        "connector-tax: no step records: x.KVConnectorFactory has no create_connector (process 7)\n"
        "connector-tax: step timing wraps x.Scheduler (process 7)\n"
    )
    scheduler, worker = (log.parent / f"engine_step.{p}.7.jsonl" for p in ("scheduler", "worker"))
    scheduler.write_text(header("scheduler"))
    assert recorder_heard(log, stderr).available
    assert recorder_heard(log, stderr, connector=True).reason == (
        "hook times are not known: scheduler without hooks, no worker; the engine says: no step records: x.KVConnectorFactory has no create_connector (process 7)"
    )
    scheduler.write_text(header("scheduler") + header("scheduler", "build_connector_meta"))
    assert "no worker" in str(recorder_heard(log, stderr, connector=True).reason)
    worker.write_text(header("worker"))
    assert "worker without hooks" in str(recorder_heard(log, stderr, connector=True).reason)
    worker.write_text(header("worker", "get_finished"))
    assert recorder_heard(log, stderr, connector=True).available
