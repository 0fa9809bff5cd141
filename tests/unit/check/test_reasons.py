"""A switched setting is explained in vLLM's words, or said to be unexplained."""

from connector_tax.check.reasons import switched

HYBRID = "scheduler_config.disable_hybrid_kv_cache_manager"
HEAD = "(EngineCore pid=1) INFO 11-22 14:33:08 [vllm.py:{}] "
PLAIN_LOG = (
    HEAD.format(10)
    + "Using hybrid KV cache manager with 1 group\n"
    + HEAD.format(11)
    + "Using FLASH_ATTN backend\n"
)
WHY = "Turning off hybrid kv cache manager because `--kv-transfer-config` is set."
OWN_LOG = (
    "(EngineCore pid=99) INFO 11-22 15:00:00 [vllm.py:10] Using hybrid KV cache manager with 2 group\n"
    + f"(APIServer pid=98) WARNING 11-22 15:00:00 [vllm.py:12] {WHY}\n"
    + HEAD.format(13)
    + "config: hybrid=False "
    + "x" * 400
    + "\n"
)


def test_the_line_that_plains_log_lacks_is_the_reason() -> None:
    """Times, processes and numbers differ between any two launches; a dump of the configuration explains nothing."""
    (found,) = switched({HYBRID: False}, {HYBRID: True}, PLAIN_LOG, OWN_LOG)
    assert (found.setting, found.plain, found.own) == (HYBRID, False, True)
    assert found.reasons == (WHY,)


def test_a_setting_of_which_the_log_says_nothing_has_no_reason() -> None:
    (found,) = switched(
        {"scheduler_config.policy": "fcfs"}, {"scheduler_config.policy": "priority"}, PLAIN_LOG, OWN_LOG
    )
    assert found.reasons == ()


def test_engines_with_the_same_settings_switched_nothing() -> None:
    assert (
        switched(
            {HYBRID: False, "cache_config.num_gpu_blocks": 10},
            {HYBRID: False, "cache_config.num_gpu_blocks": 9},
            "",
            "",
        )
        == ()
    )
