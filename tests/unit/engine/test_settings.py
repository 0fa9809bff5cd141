"""What engines resolved, how they differ, and the flags that take plain vLLM there."""

import json
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.identity import differences
from connector_tax.run.engine.settings import matching_flags, pinned, resolved_settings

LOG = """
(EngineCore pid=1) INFO [utils.py:347] Using LBHNC KV cache layout.
(Worker pid=2) INFO [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends: [...]
(EngineCore pid=1) INFO [kv_cache_utils.py:2327] GPU KV cache size: 2,097,152 tokens, Maximum concurrency
"""


def test_settings_come_from_the_records_header_and_the_log(tmp_path: Path) -> None:
    header = {"kind": "header", "process": "scheduler", "pid": 1}
    settings = {"cache_config.block_size": 16, "model_config.seed": None}
    path = tmp_path / "engine_step.scheduler.1.jsonl"
    path.write_text(json.dumps({**header, "settings": settings}) + "\n" + json.dumps(header) + "\n")
    assert resolved_settings(tmp_path / "engine_step.jsonl", LOG) == {
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
