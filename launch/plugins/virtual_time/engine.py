"""``python -m virtual_time.engine SOCKET``: imports vLLM once, then forks an engine per received line.

A line is ``{"socket": PATH, "log": PATH, "environment": {...}, "wanted": {...}}``. The engine answers at its
own socket, in lines of JSON: first ``{"ready": ...}`` or ``{"error": ...}``. Then it receives cells for
``cell.py``, with ``observe``: whether steps are recorded. After each slice of a cell it answers ``{"more":
true}`` and waits for a line; after the last it sends the cell's result. A process ends when its socket does.
"""

import gc
import importlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import scheduler_step_timing
import virtual_gpu.clock

from virtual_time.clock import VirtualTime, charge_waits
from virtual_time.needed import lacking

# Modules that an engine imports at its start, besides their own imports. Connectors are imported after the
# fork.
IMPORTED = (
    "vllm.engine.arg_utils",
    "vllm.v1.engine.core",
    "vllm.v1.executor.uniproc_executor",
    "vllm.v1.core.sched.async_scheduler",
    "virtual_gpu.worker",
    "virtual_time.cell",
)
NULL_HOOK, NULL_CALLS = "null_hook", 4
IDLE_S = 0.5
LEAST_CORES = 0.1


class NullHook:
    """A hook that does nothing; its measured time is the observer's own cost."""

    def null_hook(self) -> None:
        return


class Observer:
    """Step records (``patches/_step_profile.py``) that switch on and off at once.

    Their hooks' CPU time is what the engine's thread is charged, in every step.
    """

    def __init__(self, source: VirtualTime) -> None:
        self._profile = profile = scheduler_step_timing.profile()
        profile.cpu_ns, profile.CPU_EVERY = source.spent_ns, 1
        self._null_hook = NullHook()
        profile.scheduler_side.meter.wrap(self._null_hook, [NULL_HOOK])
        self._on = True

    def beside(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """Return ``step`` with null hook calls after it: one cold and the others warm, as a connector's."""

        def step_and_null_hook() -> Any:
            found = step()
            for _ in range(NULL_CALLS):
                self._null_hook.null_hook()
            return found

        return step_and_null_hook

    def switch(self, on: bool) -> None:
        if self._on != on:
            self._on = on
            for side in self._profile.sides:
                self._profile.switch(side.meter.wrapped, on)

    def flush(self) -> None:
        for side in self._profile.sides:
            if side.recorder is not None:
                side.recorder.flush()


def make_core(wanted: dict[str, Any]) -> Any:
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.executor.abstract import Executor

    kv = wanted["kv_transfer_config"]
    arguments = EngineArgs(
        model=wanted["model"],
        kv_transfer_config=None if kv is None else KVTransferConfig(**kv),
        **wanted["args"],
    )
    config = arguments.create_engine_config()
    return EngineCore(config, Executor.get_class(config), log_stats=True)


def spinning() -> dict[str, float]:
    """Return the cores that idle threads of this process use, by thread name, from a tenth of a core on."""

    def spent() -> dict[int, tuple[str, int]]:
        found = {}
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # it has ended
                name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
                utime, stime = rest.split()[11:13]
                found[int(task.name)] = (name, int(utime) + int(stime))
        return found

    before = spent()
    time.sleep(IDLE_S)
    ticks = IDLE_S * os.sysconf("SC_CLK_TCK")
    cores: dict[str, float] = {}
    for thread, (name, after) in spent().items():
        share = (after - before.get(thread, (name, after))[1]) / ticks
        if share >= LEAST_CORES:
            cores[name] = round(cores.get(name, 0.0) + share, 2)
    return cores


def serve(wanted: dict[str, Any], answer: Callable[[dict[str, Any]], None], hear: Callable[[], Any]) -> None:
    source = virtual_gpu.clock.source = VirtualTime()
    charge_waits(source)
    observer = Observer(source)
    core = make_core(wanted)
    observer.switch(False)
    import vllm

    from virtual_time.cell import Work, run_cell

    step, work = core.step_fn, Work()
    facts = {
        **scheduler_step_timing.profile().settings_of(core.scheduler),
        "vllm": vllm.__version__,
        "spinning": spinning(),
        "pid": os.getpid(),
    }
    answer({"ready": facts})

    def each_slice() -> None:
        answer({"more": True})
        hear()

    while True:
        cell = hear()
        observer.switch(cell["observe"])
        core.step_fn = observer.beside(step) if cell["observe"] else step
        begun_ns = time.monotonic_ns()
        found = run_cell(core, source, work, cell, each_slice)
        observer.flush()
        answer(
            {**found, "window_ns": [begun_ns, time.monotonic_ns()], "process_cpu_ns": time.process_time_ns()}
        )


class Channel:
    """Lines of JSON over a Unix socket."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._stream = self._socket.makefile("rw", encoding="utf-8")

    def answer(self, what: dict[str, Any]) -> None:
        self._stream.write(json.dumps(what) + "\n")
        self._stream.flush()

    def hear(self) -> Any:
        line = self._stream.readline()
        if not line:
            os._exit(0)
        return json.loads(line)


def engine(what: dict[str, Any]) -> None:
    """Serve in the fork; never returns."""
    log = os.open(what["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(what["environment"])
    channel = Channel(what["socket"])
    try:
        serve(what["wanted"], channel.answer, channel.hear)
    except Exception as error:  # noqa: BLE001 - the outermost frame of this process, and the pipeline says of what it died
        traceback.print_exc()
        sys.stderr.flush()
        channel.answer({"error": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(1)


def main() -> None:
    channel = Channel(sys.argv[1])
    if (reason := lacking()) is not None:
        raise RuntimeError(f"this vLLM cannot be driven in virtual time: {reason}")
    scheduler_step_timing.install()
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    while True:
        what = channel.hear()
        if os.fork() == 0:
            engine(what)


if __name__ == "__main__":
    main()
