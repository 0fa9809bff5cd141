"""A comparison in virtual time: starts engines together, interleaves their cells, repeats afresh."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np

from connector_tax.base.errors import EngineError
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import CellWindow
from connector_tax.base.seeds import derive_seed, stream
from connector_tax.base.steptime.share import cut
from connector_tax.base.units import NS_PER_S
from connector_tax.read.ingest.steps import StepTable, read_steps
from connector_tax.virtual_time.engines import (
    Engine,
    EngineFailed,
    Engines,
    EngineSpec,
    Stopped,
    interleaved,
)

# About 10 ms. Bursts of neighbours last longer, and shorter slices run mostly on cold caches:
# tests/perf/virtual_time.py.
SLICE_STEPS = 40
WARMUP_REQUESTS = 200
# In the cell that records hooks.
RECORDED_REQUESTS = 400
# The fewest for an interval.
ENOUGH_STARTS = 2
# With less CPU time of other threads per step, a second cell that charges it would show nothing.
NO_OTHERS_US = 0.5


@dataclass(frozen=True, slots=True)
class Load:
    """Poisson arrivals, the same for each engine.

    Attributes:
        requests: per engine and start.
        seed: of arrivals and prompts.
    """

    rate_per_s: float = 24.0
    input_tokens: int = 256
    output_tokens: int = 16
    requests: int = 1200
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """One engine's times of one cell; arrays per request, ns from the start of the cell.

    Attributes:
        looked_ns: when the engine polled its input queue and took the request.
        before_ns: time between that poll and the previous one; 0 if the engine was idle.
        engine_ns: CPU charged to the engine's thread; ``others_ns``: CPU of other Python threads beside it.
        work_ns: medians of two reference computations: within the core's own caches, and beyond them.
        ran_ns, wall_ns: CPU and real time of the engine's thread while its virtual clock ran, without waits.
    """

    arrivals_ns: Any
    looked_ns: Any
    before_ns: Any
    first_ns: Any
    last_ns: Any
    tokens: Any
    steps: int
    engine_ns: int
    others_ns: int
    waits: int
    work_ns: tuple[float, float]
    ran_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Start:
    """One engine of one start.

    Attributes:
        with_others: the same requests with other threads' CPU time charged; equals ``charged`` if they spend
            none.
        recorded: recorded steps of a connector's engine; None for plain.
    """

    charged: Cell
    with_others: Cell
    recorded: StepTable | None


@dataclass(slots=True)
class Measured:
    """All starts of one engine.

    Attributes:
        facts: ``vllm``, the resolved ``settings`` and ``async_scheduling``; ``spinning``: thread -> cores.
        died: why an engine of a later start died; ``starts`` then has the earlier ones.
    """

    spec: EngineSpec
    load: Load
    scheduling: str
    facts: Foreign = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    died: str | None = None


def measure_many(
    specs: Sequence[EngineSpec],
    load: Load,
    *,
    scheduling: str,
    starts: int = 4,
    stop: Event | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Measured]:
    """Measure engines against each other: engines of one start take turns, one slice each.

    Args:
        scheduling: ``sync`` or ``async``.
        stop: once set, the finished starts are returned.

    Raises:
        EngineError: an engine cannot start or died before there were enough starts for an interval, or
            ``stop`` was set before the first start ended.
    """
    begun_s = time.monotonic()

    def check() -> None:
        if stop is not None and stop.is_set():
            raise Stopped

    measured = [Measured(spec, load, scheduling) for spec in specs]
    try:
        with ExitStack() as stack:
            ahead = stack.enter_context(Engines(specs, scheduling, 0, check))
            for start in range(starts):
                say(f"{scheduling}: start {start + 1} of {starts}")
                current = ahead
                running = current.started()
                if start + 1 < starts:
                    ahead = stack.enter_context(Engines(specs, scheduling, start + 1, check))
                for measurement, engine, start_result in zip(
                    measured, running, _one_start(running, load, start, check), strict=True
                ):
                    measurement.facts = engine.facts
                    measurement.starts.append(start_result)
                    measurement.cpu_s += engine.cpu_s
                current.end()
    except Stopped:
        if not measured[0].starts:
            raise EngineError(
                "virtual time: stopped before the first start was measured. Give it more time."
            ) from None
    except EngineError as error:
        if len(measured[0].starts) < ENOUGH_STARTS:
            raise
        say(f"{error} What {len(measured[0].starts)} starts said is kept.")
        for measurement in measured:
            measurement.died = str(error)
    for measurement in measured:
        measurement.wall_s = time.monotonic() - begun_s
    return measured


def _one_start(running: list[Engine], load: Load, start: int, check: Callable[[], None]) -> list[Start]:
    _cells(running, load, WARMUP_REQUESTS, f"w{start}", check)
    charged = _cells(running, load, load.requests, f"c{start}", check)
    with_others = charged
    if any(c.others_ns / c.steps > 1e3 * NO_OTHERS_US for c in charged):
        with_others = _cells(running, load, load.requests, f"c{start}", check, charges_others=True)
    observed = [engine for engine in running if engine.spec.kv_transfer_config is not None]
    tables = dict(zip(observed, _recorded(observed, load, start, check), strict=True))
    return [
        Start(c, o, tables.get(engine)) for engine, c, o in zip(running, charged, with_others, strict=True)
    ]


def _cells(
    running: list[Engine],
    load: Load,
    requests: int,
    name: str,
    check: Callable[[], None],
    *,
    charges_others: bool = False,
) -> list[Cell]:
    cell = _cell(load, requests, name, charges_others=charges_others, observe=False)
    results = interleaved(running, cell, check)
    return [_read(cell, result, engine.spec) for result, engine in zip(results, running, strict=True)]


def _recorded(running: list[Engine], load: Load, start: int, check: Callable[[], None]) -> list[StepTable]:
    cell = _cell(load, RECORDED_REQUESTS, f"h{start}", charges_others=False, observe=True)
    tables = []
    for engine, result in zip(running, interleaved(running, cell, check), strict=True):
        begun_ns, done_ns = result["window_ns"]
        share = engine.folder / "engine_step.jsonl"
        cut(sorted((engine.folder / "steps").glob("*.jsonl")), begun_ns, done_ns, share)
        tables.append(
            read_steps(share, CellWindow(begun_ns, begun_ns, done_ns, done_ns, True), connector=True)
        )
    return tables


def _cell(load: Load, requests: int, name: str, *, charges_others: bool, observe: bool) -> Foreign:
    gaps = stream(load.seed, "virtual_time", "arrivals", name).exponential(
        NS_PER_S / load.rate_per_s, requests
    )
    return {
        "arrivals_ns": np.cumsum(gaps).astype(np.int64).tolist(),
        "input_tokens": load.input_tokens,
        "output_tokens": load.output_tokens,
        # The second cell has other prompts with the same arrivals: a connector's store may hold the first.
        "seed": derive_seed(load.seed, "virtual_time", "prompts", f"{name} {charges_others}"),
        "name": f"{name} {charges_others}",
        "slice_steps": SLICE_STEPS,
        "charges_others": charges_others,
        "observe": observe,
    }


def _read(cell: Foreign, result: Foreign, spec: EngineSpec) -> Cell:
    """Decode a cell's result.

    Raises:
        EngineFailed: requests ended early, which would flatter every number of the cell.
    """
    output_tokens = cell["output_tokens"]
    if n_early := sum(n_tokens != output_tokens for n_tokens in result["tokens"]):
        reason = (
            f"{n_early} of {len(result['tokens'])} requests ended without their {output_tokens} tokens"
            " in virtual time."
        )
        raise EngineFailed((spec, reason))
    small_ns, wide_ns = (float(np.median(result[name])) for name in ("small_work_ns", "wide_work_ns"))
    return Cell(
        arrivals_ns=np.array(cell["arrivals_ns"]),
        looked_ns=np.array(result["looked_ns"]),
        before_ns=np.array(result["before_ns"]),
        first_ns=np.array(result["first_ns"]),
        last_ns=np.array(result["last_ns"]),
        tokens=np.array(result["tokens"]),
        steps=result["steps"],
        engine_ns=result["engine_ns"],
        others_ns=result["others_ns"],
        waits=result["waits"],
        work_ns=(small_ns, wide_ns),
        ran_ns=result["ran_ns"],
        wall_ns=result["wall_ns"],
    )
