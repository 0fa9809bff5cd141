"""The reason an engine died, out of vLLM's layers of tracebacks."""

import pytest

from connector_tax.engine.root_cause import root_cause

MOONCAKE_ON_CPU = """
(EngineCore_DP0 pid=812) ERROR 11-20 10:00:00 [core.py:866] EngineCore failed to start.
(EngineCore_DP0 pid=812) ERROR 11-20 10:00:00 [core.py:866] Traceback (most recent call last):
(EngineCore_DP0 pid=812) ERROR 11-20 10:00:00 [core.py:866]   File "vllm/v1/worker/gpu_worker.py", line 3, in init
(EngineCore_DP0 pid=812) ERROR 11-20 10:00:00 [core.py:866] RuntimeError: Cannot access accelerator device when none is available.
Traceback (most recent call last):
  File "api_server.py", line 1, in <module>
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': 1}
"""
WORKER_BELOW = """
(Worker pid=9) ERROR 11-20 10:00:00 [multiproc_executor.py:772] ValueError: No available memory for the cache blocks.
(EngineCore_DP0 pid=8) ERROR 11-20 10:00:00 [core.py:866] Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
TOLD_TO_END = """
Traceback (most recent call last):
KeyboardInterrupt
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (MOONCAKE_ON_CPU, "RuntimeError: Cannot access accelerator device when none is available."),
        (WORKER_BELOW, "ValueError: No available memory for the cache blocks."),
        (TOLD_TO_END, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        (
            "api_server.py: error: unrecognized arguments: --frobnicate",
            "api_server.py: error: unrecognized arguments: --frobnicate",
        ),
        ("INFO 11-20 [x.py:1] starting\nKilled", "Killed"),
        ("", "the engine left no output"),
        ("starting\nall is well", "all is well"),
    ],
)
def test_the_first_exception_that_wraps_nothing_is_the_cause(log: str, cause: str) -> None:
    assert root_cause(log) == cause


@pytest.mark.parametrize(
    ("exit_code", "cause"),
    [
        (137, "killed by SIGKILL; the log gives no reason"),
        (-9, "killed by SIGKILL; the log gives no reason"),
        (139, "killed by SIGSEGV; the log gives no reason"),
        (1, "serving on port 8000"),
        (None, "serving on port 8000"),
    ],
)
def test_a_signal_is_named_where_the_log_has_no_exception(exit_code: int | None, cause: str) -> None:
    assert root_cause("loading\nserving on port 8000", exit_code) == cause
    assert root_cause("ValueError: no\nserving", exit_code) == "ValueError: no"
