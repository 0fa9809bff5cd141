"""Step records as the modelled engine writes them: the very lines that step timing writes inside vLLM."""

import json

from connector_tax.base.steptime.raw import Header

# What the modelled connector has; a row's ``hooks`` holds nanoseconds and calls of each.
HOOKS = {"scheduler": ("build_connector_meta",), "worker": ("start_load_kv", "get_finished")}


def header_line(
    *,
    process: str,
    pid: int,
    monotonic_ns: int,
    utc_ns: int,
    engine_version: str,
    settings: Header | None = None,
) -> str:
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
        "hooks": HOOKS[process],
        "async_scheduling": False,
    }
    if settings is not None:
        value["settings"] = settings
    return json.dumps(value, separators=(",", ":")) + "\n"


def step_line(
    *,
    pid: int,
    step_id: int,
    t_ns: int,
    duration_ns: int,
    previous_t_ns: int | None,
    schedule_us: float,
    update_us: float,
    build_meta_us: float,
    num_running: int,
    num_waiting: int,
    prefill_tokens: int,
    decode_tokens: int,
) -> str:
    """One scheduler row; ``schedule_us`` includes ``build_meta_us``, as in vLLM."""
    duration_us = duration_ns / 1e3
    interval = "null" if previous_t_ns is None else f"{(t_ns - previous_t_ns) / 1e3:.3f}"
    return (
        f'{{"kind":"step","process":"scheduler","pid":{pid},"step_id":{step_id},"t_ns":{t_ns},'
        f'"schedule_us":{schedule_us:.3f},"t_update_ns":{t_ns + duration_ns - round(update_us * 1e3)},'
        f'"update_us":{update_us:.3f},"step_duration_us":{duration_us:.3f},"step_interval_us":{interval},'
        f'"round_trip_us":{duration_us - schedule_us - update_us:.3f},"build_meta_us":{build_meta_us:.3f},'
        f'"get_finished_us":null,"start_load_kv_us":null,"num_running":{num_running},'
        f'"num_waiting":{num_waiting},"prefill_tokens":{prefill_tokens},"decode_tokens":{decode_tokens},'
        f'"hooks":[{round(build_meta_us * 1e3)},{int(build_meta_us > 0)}]}}\n'
    )


def worker_line(
    *, pid: int, step_id: int, t_ns: int, span_us: float, start_load_kv_us: float, get_finished_us: float
) -> str:
    """One worker row; ``span_us`` is the worker's part of the step, its hooks included."""
    return (
        f'{{"kind":"worker_step","process":"worker","pid":{pid},"step_id":{step_id},"t_ns":{t_ns},'
        f'"span_us":{span_us:.3f},"start_load_kv_us":{start_load_kv_us:.3f},"get_finished_us":{get_finished_us:.3f},'
        f'"hooks":[{round(start_load_kv_us * 1e3)},1,{round(get_finished_us * 1e3)},1]}}\n'
    )
