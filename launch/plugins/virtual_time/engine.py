"""``python -m virtual_time.engine SOCKET``: one EngineCore in virtual time, which does what it is told over a Unix socket.

A line of JSON each way. The first one says what to start; the answer is ``{"ready": ...}`` or ``{"error": ...}``. Each further one is a cell of
``cell.py``, with ``observe``: whether steps are recorded. After each slice of a cell the answer is ``{"more": true}``, and
the engine waits for an empty line; then comes the cell's result. The end of the socket ends the process.
"""

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

NULL_HOOK = "null_hook"
IDLE_S = 0.5
LEAST_CORES = 0.1


class NullHook:
    """A hook that does nothing: what it takes is the observer's."""

    def null_hook(self) -> None:
        return


class Observer:
    """Step records (``patches/_step_profile.py``), switched at once. A hook's CPU time in them is what the engine's thread is charged, in every step."""

    def __init__(self, source: VirtualTime) -> None:
        self._profile = profile = scheduler_step_timing.profile()
        profile.cpu_ns, profile.CPU_EVERY = source.spent_ns, 1
        self._null_hook = NullHook()
        profile.scheduler_side.meter.wrap(self._null_hook, [NULL_HOOK])
        self._on = True

    def beside(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """``step`` with a call of the null hook behind it, as warm as a step's other hooks."""

        def step_and_null_hook() -> Any:
            found = step()
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
    """Cores that threads of this process take while nobody asks for anything, by the thread's name; those that take a tenth of one."""

    def spent() -> dict[str, tuple[str, int]]:
        found = {}
        for task in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # it has ended
                name, _, rest = (task / "stat").read_text().partition("(")[2].rpartition(")")
                utime, stime = rest.split()[11:13]
                found[task.name] = (name, int(utime) + int(stime))
        return found

    before = spent()
    time.sleep(IDLE_S)
    ticks = IDLE_S * os.sysconf("SC_CLK_TCK")
    cores: dict[str, float] = {}
    for task, (name, after) in spent().items():
        share = (after - before.get(task, (name, after))[1]) / ticks
        if share >= LEAST_CORES:
            cores[name] = round(cores.get(name, 0.0) + share, 2)
    return cores


def serve(wanted: dict[str, Any], answer: Callable[[dict[str, Any]], None], hear: Callable[[], Any]) -> None:
    source = virtual_gpu.clock.source = VirtualTime()
    charge_waits(source)
    scheduler_step_timing.install()
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
        answer({**found, "window_ns": [begun_ns, time.monotonic_ns()], "process_cpu_ns": time.process_time_ns()})


def main() -> None:
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(sys.argv[1])
    stream = channel.makefile("rw", encoding="utf-8")

    def answer(what: dict[str, Any]) -> None:
        stream.write(json.dumps(what) + "\n")
        stream.flush()

    def hear() -> Any:
        line = stream.readline()
        if not line:
            os._exit(0)
        return json.loads(line)

    wanted = hear()
    if (reason := lacking()) is not None:
        answer({"error": f"this vLLM cannot be driven in virtual time: {reason}"})
        return
    try:
        serve(wanted, answer, hear)
    except Exception as error:
        traceback.print_exc()
        sys.stderr.flush()
        answer({"error": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
