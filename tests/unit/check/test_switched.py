"""A switched setting is explained in vLLM's words, or said to be unexplained."""

from connector_tax.check.campaign import switched

HYBRID = "scheduler_config.disable_hybrid_kv_cache_manager"
WHY = "Turning off hybrid kv cache manager because `--kv-transfer-config` is set."
LOG = (
    "(EngineCore pid=99) INFO 11-22 15:00:00 [vllm.py:10] Using FLASH_ATTN backend\n"
    f"(APIServer pid=98) WARNING 11-22 15:00:00 [vllm.py:12] {WHY}\n"
    f"(EngineCore pid=1) INFO 11-22 14:33:08 [vllm.py:13] config: hybrid=False {'x' * 400}\n"
)


def test_a_line_about_the_setting_is_the_reason() -> None:
    """A dump of the configuration explains nothing."""
    (found,) = switched({HYBRID: False}, {HYBRID: True}, LOG)
    assert (found.setting, found.plain, found.own, found.said) == (HYBRID, False, True, (WHY,))


def test_a_setting_of_which_the_log_says_nothing_has_no_reason() -> None:
    (found,) = switched({"scheduler_config.policy": "fcfs"}, {"scheduler_config.policy": "priority"}, LOG)
    assert found.said == ()


def test_engines_with_the_same_settings_switched_nothing() -> None:
    """Another number of KV blocks follows from other settings."""
    blocks = "cache_config.num_gpu_blocks"
    assert switched({HYBRID: False, blocks: 10}, {HYBRID: False, blocks: 9}, LOG) == ()
