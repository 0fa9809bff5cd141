"""Cells in virtual time to taxes: ratios and differences over pairs of starts, with intervals.

*Phase averaging.* A request waits until the engine polls its queue again, for up to a whole step. The phase
of its arrival within a step is chance, and one microsecond more per step redraws it for all requests. With
short prompts this is most of TTFT's noise. So each request counts with every wait that it could have had,
uniform over the interval between the two polls, instead of the one that it had.
Source: Casella & Robert 1996, Rao-Blackwellisation of sampling schemes.
"""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from connector_tax.base.statistics.distributions import log_mean, mean_interval
from connector_tax.read.ingest.steps import StepTable
from connector_tax.virtual_time.cells import Cell, Measured, Start
from connector_tax.virtual_time.result import Bounds, HookCpu, Interval, Tax, VirtualTime

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
PHASES = (np.arange(20) + 0.5) / 20
NULL_HOOK = "scheduler/null_hook"
# A hook waits for something without CPU time in this process if its wall time in the median step exceeds its
# CPU time by this factor plus this many microseconds.
FAR_EXCEEDS, FAR_EXCEEDS_US = 3.0, 100.0
# More uncharged time per step than this would change a tax, whichever steps it falls into.
UNSEEN_US = 50.0


def ttft_ms(cell: Cell) -> Floats:
    return np.asarray((cell.first_ns - cell.arrivals_ns) / 1e6)


def phase_averaged_ttft_ms(cell: Cell) -> Floats:
    """Return TTFT for every phase at which each request could have arrived; shape (requests x phases,)."""
    after_look = (cell.first_ns - cell.looked_ns)[:, None]
    return np.asarray((after_look + cell.before_ns[:, None] * PHASES).ravel() / 1e6)


def tpot_ms(cell: Cell) -> Floats:
    return np.asarray((cell.last_ns - cell.first_ns) / np.maximum(cell.tokens - 1, 1) / 1e6)


METRICS: dict[str, Callable[[Cell], float]] = {
    "ttft_p50": lambda cell: float(np.percentile(phase_averaged_ttft_ms(cell), 50)),
    "ttft_p90": lambda cell: float(np.percentile(phase_averaged_ttft_ms(cell), 90)),
    "ttft_p90_raw": lambda cell: float(np.percentile(ttft_ms(cell), 90)),
    "tpot_p50": lambda cell: float(np.percentile(tpot_ms(cell), 50)),
    "tpot_p90": lambda cell: float(np.percentile(tpot_ms(cell), 90)),
}


def ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Interval:
    """Return the geometric mean ratio of pairs, minus one."""
    logs = np.log(np.asarray(numerators) / np.asarray(denominators))
    if logs.size < 2:
        return Interval(float(np.expm1(logs.mean())), None, None)
    mean = log_mean(logs)
    return Interval(mean.point, *mean.interval(CONFIDENCE))


def mean(values: Sequence[float]) -> Interval:
    if len(values) < 2:
        return Interval(float(np.mean(values)), None, None)
    return Interval(*mean_interval(np.asarray(values, dtype=np.float64), CONFIDENCE))


def compare(plain: Measured, connector: Measured) -> VirtualTime:
    """Compare a connector with plain, measured together by ``measure_many``."""
    pairs = list(zip(plain.starts, connector.starts, strict=True))
    charged = [(p.charged, c.charged) for p, c in pairs]
    with_others = [(p.with_others, c.with_others) for p, c in pairs]
    measured = {"plain": plain, "connector": connector}
    hooks, null_hook_us = _hooks(connector.starts)
    unseen_us = mean([_unseen_us(p, c) for p, c in charged])
    if hooks and unseen_us.low is not None and unseen_us.low > UNSEEN_US:
        waiting_hook = max(
            hooks, key=lambda hook: hook.wall_us_per_step - (hook.cpu_us_per_step.point or 0.0)
        )
        hooks = tuple(
            replace(hook, in_virtual_time=False) if hook is waiting_hook else hook for hook in hooks
        )
    return VirtualTime(
        scheduling=plain.scheduling,
        starts=len(pairs),
        requests=len(pairs) * plain.load.requests,
        steps=sum(s.charged.steps for s in plain.starts),
        rate_per_s=plain.load.rate_per_s,
        input_tokens=plain.load.input_tokens,
        output_tokens=plain.load.output_tokens,
        taxes=tuple(_tax(metric, charged, with_others) for metric in METRICS),
        engine_us_per_step={
            name: mean([engine_us(s.charged) for s in m.starts]) for name, m in measured.items()
        },
        others_us_per_step={
            name: float(np.mean([others_us(s.charged) for s in m.starts])) for name, m in measured.items()
        },
        waits_per_step={
            name: float(np.mean([s.charged.waits / s.charged.steps for s in m.starts]))
            for name, m in measured.items()
        },
        step_us=Bounds(
            mean([engine_us(c) - engine_us(p) for p, c in charged]),
            mean([engine_us(c) + others_us(c) - engine_us(p) - others_us(p) for p, c in with_others]),
        ),
        hooks=hooks,
        null_hook_us=null_hook_us,
        work_ratio=_work_ratio(charged, 0),
        wide_work_ratio=_work_ratio(charged, 1),
        cpu_s=plain.cpu_s + connector.cpu_s,
        wall_s=max(plain.wall_s, connector.wall_s),
        unseen_us=unseen_us,
        died=plain.died,
    )


def engine_us(cell: Cell) -> float:
    """Return the CPU charged to the engine's thread per step."""
    return cell.engine_ns / 1e3 / cell.steps


def others_us(cell: Cell) -> float:
    return cell.others_ns / 1e3 / cell.steps


def _unseen_us(plain: Cell, connector: Cell) -> float:
    """Return the connector thread's time off its core per step.

    Time that the host took from plain's thread in the same turns does not count, nor time of other threads
    that held the GIL.
    """
    host = plain.wall_ns / (plain.ran_ns + plain.others_ns)
    return (connector.wall_ns - host * (connector.ran_ns + connector.others_ns)) / 1e3 / connector.steps


def _work_ratio(pairs: Sequence[tuple[Cell, Cell]], index: int) -> Interval:
    return ratio([c.work_ns[index] for _, c in pairs], [p.work_ns[index] for p, _ in pairs])


def _tax(metric: str, charged: Sequence[tuple[Cell, Cell]], with_others: Sequence[tuple[Cell, Cell]]) -> Tax:
    value_of = METRICS[metric]
    ratios, differences, levels = [], [], []
    for pairs in (charged, with_others):
        plain, connector = [value_of(p) for p, _ in pairs], [value_of(c) for _, c in pairs]
        ratios.append(ratio(connector, plain))
        differences.append(mean([1e3 * (c - p) for p, c in zip(plain, connector, strict=True)]))
        levels.append((float(np.mean(plain)), float(np.mean(connector))))
    return Tax(metric, *levels[0], Bounds(*ratios), Bounds(*differences))


def _hooks(starts: Sequence[Start]) -> tuple[tuple[HookCpu, ...], float]:
    """Return the CPU of each called hook, and the null hook's microseconds per call."""
    tables = [s.recorded for s in starts if s.recorded is not None]
    if not tables:
        return (), 0.0
    names = [name for name in tables[0].hooks.names if name != NULL_HOOK]
    nulls = [null_hook_us(table) for table in tables]
    hook_costs = []
    for name in names:
        per_table = [_hook(table, name) for table in tables]
        if not any(calls for calls, *_ in per_table):
            continue
        cpu = [cpu_us - calls * null for (calls, cpu_us, *_), null in zip(per_table, nulls, strict=True)]
        calls, wall, median_wall, median_cpu = (
            float(np.mean([row[index] for row in per_table])) for index in (0, 2, 3, 4)
        )
        side, _, hook = name.partition("/")
        in_virtual_time = median_wall < FAR_EXCEEDS * median_cpu + FAR_EXCEEDS_US
        hook_costs.append(HookCpu(side, hook, calls, mean(cpu), wall, in_virtual_time))
    return tuple(hook_costs), float(np.mean(nulls))


def null_hook_us(table: StepTable) -> float:
    """Return the observed CPU of one call of a hook that does nothing."""
    column = table.hooks.names.index(NULL_HOOK)
    return float(np.nansum(table.hooks.cpu_us[:, column]) / table.hooks.calls[:, column].sum())


def _hook(table: StepTable, name: str) -> tuple[float, ...]:
    """Return a hook's calls, CPU and wall us per step; wall and CPU us of the median step that called it.

    The median, because a busy host takes the core away in some steps.
    """
    column = table.hooks.names.index(name)
    wall, cpu, calls = (
        values[:, column] for values in (table.hooks.us, table.hooks.cpu_us, table.hooks.calls)
    )
    called = calls > 0
    medians = (float(np.nanmedian(v[called])) if called.any() else 0.0 for v in (wall, cpu))
    return (*(float(np.nanmean(v)) for v in (calls, cpu, wall)), *medians)
