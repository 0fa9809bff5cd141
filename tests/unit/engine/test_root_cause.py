"""The reason an engine died, out of vLLM's layers of tracebacks."""

import subprocess
import sys
from pathlib import Path

import pytest
from builders import campaign_config

from connector_tax.run.engine.process import LaunchRequest, RunningEngine
from connector_tax.run.engine.root_cause import error_in, root_cause, since_ready

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
        ("asyncio.exceptions.CancelledError\nTimeoutError: no step in 60 s", "TimeoutError: no step in 60 s"),
        (MOONCAKE_ON_CPU, "RuntimeError: Cannot access accelerator device when none is available."),
        (WORKER_BELOW, "ValueError: No available memory for the cache blocks."),
        (TOLD_TO_END, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        ("INFO 11-20 [x.py:1] starting\nKilled", "Killed"),
        ("", "the engine left no output"),
    ],
)
def test_the_first_exception_that_wraps_nothing_is_the_cause(log: str, cause: str) -> None:
    assert root_cause(log) == cause


@pytest.mark.parametrize(
    ("exit_code", "cause"),
    [
        (139, "killed by SIGSEGV; the log gives no reason"),
        (-9, "killed by SIGKILL; the log gives no reason"),
        (1, "serving on port 8000"),
    ],
)
def test_a_signal_is_named_where_the_log_has_no_exception(exit_code: int | None, cause: str) -> None:
    assert root_cause("loading\nserving on port 8000", exit_code) == cause
    assert root_cause("ValueError: no\nserving", exit_code) == "ValueError: no"


LOGS = Path(__file__).parents[2] / "data" / "logs"
UNTOLD = "vLLM's log does not say of what"
KILLED = [
    ("vllm_0.32_worker_sigill.log", "worker process VllmWorker-0 died: SIGILL"),
    ("vllm_0.32_worker_sigsegv.log", "worker process VllmWorker-0 died: SIGSEGV"),
    ("vllm_0.32_engine_core_sigkill.log", f"engine core process ended unexpectedly: {UNTOLD}"),
]


@pytest.mark.parametrize(("name", "cause"), KILLED)
def test_a_killed_process_is_the_cause_and_not_who_points_at_it(name: str, cause: str) -> None:
    """Logs of vLLM 0.32 while it served: what its client got was "See stack trace (above)"."""
    log = (LOGS / name).read_text()
    assert "See stack trace (above)" in log
    assert root_cause(log) == root_cause(log, exit_code=0) == error_in(log) == cause


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        # Before 0.26 or so without the exit code.
        (
            "(EngineCore_0 pid=9) ERROR 11-20 10:00:00 [multiproc_executor.py:230] Worker proc VllmWorker-1 died unexpectedly, "
            "shutting down executor.\nvllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.",
            f"worker process VllmWorker-1 died: {UNTOLD}",
        ),
        (
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore_DP0': -9}",
            "engine core process EngineCore_DP0 died: SIGKILL",
        ),
        # vLLM 0.32: a worker that was gone before it could raise.
        (
            "(EngineCore pid=10037) ERROR 11-22 07:15:48 [core.py:1510] EngineCore failed to start.\n"
            "(EngineCore pid=10037) ERROR 11-22 07:15:48 [core.py:1510] Exception: WorkerProc initialization failed due to an "
            "exception in a background process. See stack trace for root cause.",
            f"a worker process ended while it started, without an exception: {UNTOLD}",
        ),
        # A worker that raised has said why; its end only follows, and so does C++ that gives up.
        (
            "torch.AcceleratorError: CUDA error: an illegal memory access\nWorker proc W-0 died unexpectedly (exit code: -6), x",
            "torch.AcceleratorError: CUDA error: an illegal memory access",
        ),
        ("Worker proc W-0 died unexpectedly (exit code: -6), x", "worker process W-0 died: SIGABRT"),
        ("Fatal Python error: Illegal instruction\n\nThread 0x1", "Fatal Python error: Illegal instruction"),
    ],
)
def test_deaths_that_other_releases_log(log: str, cause: str) -> None:
    assert root_cause(log) == cause


def test_lines_of_accesses_and_of_progress_are_no_error() -> None:
    assert error_in('INFO: "POST /v1/completions HTTP/1.1" 500 Internal Server Error\nserving') is None


def test_an_answer_of_500_is_explained_by_the_engines_own_log(tmp_path: Path) -> None:
    """Also while the server that gave it is still there."""
    # The sample holds both streams, vLLM's own words first.
    out, ready, err = (LOGS / KILLED[0][0]).read_text().partition("INFO:     Started server process")
    assert ready
    (tmp_path / "vllm_stdout.log").write_text(out)
    (tmp_path / "vllm_stderr.log").write_text(ready + err)
    config = campaign_config()
    server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        engine = RunningEngine(LaunchRequest(config.engine, config.connector("plain"), tmp_path), 0, server)
        assert engine.death() is None
        assert engine.trouble() == KILLED[0][1]
    finally:
        server.kill()
        server.communicate()


STARTED = """INFO 11-20 10:00:00 [zmq.py:5] port 40001 busy, trying the next
Traceback (most recent call last):
  File "zmq.py", line 1, in bind
OSError: [Errno 98] Address already in use
{ready}
INFO 11-20 10:01:09 [loggers.py:1] Engine 000: Running: 3 reqs
"""


@pytest.mark.parametrize(
    ("name", "ready"),
    [
        (
            "vllm_stdout.log",
            "(APIServer pid=1) INFO 11-20 10:00:09 [x.py:1] Starting vLLM API server 0 on http://127.0.0.1:1",
        ),
        (
            "vllm_stdout.log",
            "(APIServer pid=1) INFO 11-20 10:00:09 [entry.py:140] Starting vLLM server on http://127.0.0.1:1",
        ),
        ("vllm_stderr.log", "INFO:     Application startup complete."),
    ],
)
def test_what_an_engine_overcame_before_it_was_ready_does_not_kill_it_later(
    tmp_path: Path, name: str, ready: str
) -> None:
    """A port that was busy for a moment would be called the host's fault, and the campaign would stop."""
    died = "ERROR 11-20 10:03:00 [c.py:9] Engine core proc EngineCore_0 died unexpectedly, shutting down client.\n"
    for end, cause in (
        (died, f"engine core process EngineCore_0 died: {UNTOLD}"),
        ("", "killed by SIGKILL; the log gives no reason"),
    ):
        (tmp_path / name).write_text(STARTED.format(ready=ready) + end)
        # Without input it is still there when it is killed.
        server = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        server.kill()
        server.communicate()
        config = campaign_config()
        engine = RunningEngine(LaunchRequest(config.engine, config.connector("plain"), tmp_path), 0, server)
        assert engine.death() == cause


def test_an_engine_that_never_got_ready_died_of_what_it_said(tmp_path: Path) -> None:
    assert root_cause(since_ready(STARTED.format(ready=""))) == "OSError: [Errno 98] Address already in use"


def test_a_line_of_any_length_is_a_reason_of_one_printable_line() -> None:
    """It stands in tables, in receipts and on terminals; 300 kB of one line are no reason, and neither are its colours."""
    text = "INFO: starting\nValueError: \x1b[31mtoo many blocks: " + "7, " * 100_000 + "\n"
    for cause in (root_cause(text), error_in(text)):
        assert cause is not None
        assert cause.startswith("ValueError:  [31mtoo many blocks: 7, 7")
        assert cause.isprintable() and len(cause) < 1100
