"""What engines resolved, how they differ, and the flags that take plain vLLM there."""

import json
from pathlib import Path

from connector_tax.run.engine.settings import differences, matching_flags, pinned, resolved_settings

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
    assert resolved_settings([path], LOG) == {
        "cache_config.block_size": 16,
        "log.kv_cache_layout": "LBHNC",
        "log.attention_backend": "FLASH_ATTN",
        "log.kv_cache_tokens": "2,097,152",
    }


def test_a_layout_that_a_connector_of_older_releases_asks_for_is_told() -> None:
    """Up to 0.28 NIXL says it, and nobody says the default."""
    said = "INFO [connector.py:159] NixlConnector setting KV cache layout to HND for better xfer performance."
    assert resolved_settings([], said) == {"log.kv_cache_layout": "HND"}
    by_variable = "`VLLM_KV_CACHE_LAYOUT` environment variable detected. Setting KV cache layout to NHD."
    assert resolved_settings([], by_variable) == {"log.kv_cache_layout": "NHD"}


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
