"""Step records of the modelled engine: the same lines that step timing writes inside vLLM."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from connector_tax.base.steptime.share import Header

# Hooks of the modelled connector; a row's ``hooks`` has nanoseconds and calls of each.
HOOKS = {"scheduler": ("build_connector_meta",), "worker": ("start_load_kv", "get_finished")}


def header_line(
    *,
    process: str,
    pid: int,
    monotonic_ns: int,
    utc_ns: int,
    engine_version: str,
    settings: Header | None = None,
    members: Sequence[str] = ("",),
) -> str:
    """Return the first line of a process's file.

    Args:
        members: prefix of each connector's hook names; see ``Member``.
    """
    value: Header = {
        "kind": "header",
        "schema": 2,
        "process": process,
        "pid": pid,
        "monotonic_ns": monotonic_ns,
        "utc_ns": utc_ns,
        "engine_version": engine_version,
        "patch_sha256": None,
        "source": "emulator",
        "hooks": [prefix + name for prefix in members for name in HOOKS[process]],
        "async_scheduling": False,
    }
    if settings is not None:
        value["settings"] = settings
    return json.dumps(value, separators=(",", ":")) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRow:
    """One step of the scheduler; ``schedule_us`` includes ``build_meta_us``, as in vLLM.

    Attributes:
        build_meta_us: per member of the connector; one without cost stands for plain.
        previous_t_ns: of the previous step; None for the first.
    """

    pid: int
    step_id: int
    t_ns: int
    duration_ns: int
    previous_t_ns: int | None
    schedule_us: float
    update_us: float
    build_meta_us: Sequence[float]
    num_running: int
    num_waiting: int
    prefill_tokens: int
    decode_tokens: int

    @property
    def line(self) -> str:
        duration_us, build_meta_us = self.duration_ns / 1e3, sum(self.build_meta_us)
        interval = "null" if self.previous_t_ns is None else f"{(self.t_ns - self.previous_t_ns) / 1e3:.3f}"
        t_update_ns = self.t_ns + self.duration_ns - round(self.update_us * 1e3)
        return (
            f'{{"kind":"step","process":"scheduler","pid":{self.pid},"step_id":{self.step_id},"t_ns":{self.t_ns},'
            f'"schedule_us":{self.schedule_us:.3f},"t_update_ns":{t_update_ns},'
            f'"update_us":{self.update_us:.3f},"step_duration_us":{duration_us:.3f},"step_interval_us":{interval},'
            f'"round_trip_us":{duration_us - self.schedule_us - self.update_us:.3f},'
            f'"build_meta_us":{build_meta_us:.3f},'
            f'"get_finished_us":null,"start_load_kv_us":null,"num_running":{self.num_running},'
            f'"num_waiting":{self.num_waiting},"prefill_tokens":{self.prefill_tokens},"decode_tokens":{self.decode_tokens},'
            f'"hooks":[{",".join(f"{round(us * 1e3)},{int(us > 0)}" for us in self.build_meta_us)}]}}\n'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """The worker's part of a step; ``span_us`` is its whole time, hooks included.

    Attributes:
        hooks_us: start_load_kv and get_finished of each member of the connector.
    """

    pid: int
    step_id: int
    t_ns: int
    span_us: float
    hooks_us: Sequence[tuple[float, float]]

    @property
    def line(self) -> str:
        load_us, finished_us = map(sum, zip(*self.hooks_us, strict=True))
        hooks = ",".join(f"{round(us * 1e3)},1" for member in self.hooks_us for us in member)
        return (
            f'{{"kind":"worker_step","process":"worker","pid":{self.pid},"step_id":{self.step_id},"t_ns":{self.t_ns},'
            f'"span_us":{self.span_us:.3f},"start_load_kv_us":{load_us:.3f},"get_finished_us":{finished_us:.3f},'
            f'"hooks":[{hooks}]}}\n'
        )
