"""One latency at one load: the connector's tax, what plain differs from itself by, and how much of the tax the host's own speed may be."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from connector_tax.base.statistics.bootstrap import Estimate, combine, unavailable
from connector_tax.base.units import NS_PER_S, NS_PER_US
from connector_tax.check.lateness import late_ratio
from connector_tax.read.stats.cells import CellEstimates
from connector_tax.read.stats.host import work_us
from connector_tax.read.stats.taxes import LATENCIES, relative


@dataclass(frozen=True, slots=True)
class LoadTax:
    """
    Attributes:
        own: connector / plain - 1; plain is the geometric mean of its two launches, between which the connector's was served.
        floor: plain again / plain - 1.
        ms: metric in milliseconds, of (plain, plain again, connector).
        host_work: by how much longer a fixed piece of work took the host beside the connector than beside plain's two, as a ratio less one;
            None where that is not known.
        host_share: at most so much of the connector's latency is the host's alone. Of TPOT what the device did not cover of its steps; 1 where
            nothing bounds it, as for TTFT.
        host_whole: the same of all that the host does, also while the device is busy.
        late: by how much longer the latency may be beside the connector than beside plain since the virtual GPU's clock ran later; see
            ``lateness``.
    """

    rate_per_s: float
    metric: str
    own: Estimate
    floor: Estimate
    ms: tuple[float | None, float | None, float | None]
    host_work: float | None = None
    host_share: float = 1.0
    host_whole: float = 1.0
    late: float = 0.0

    def at_equal_lateness(self, tax: float) -> float:
        """What could be left of ``tax`` if the clock had kept the time beside the connector as it did beside plain."""
        return (1 + tax) / (1 + self.late) - 1

    def at_equal_speed(self, tax: float) -> float:
        """What could be left of ``tax`` at plain's speed, if all that the host does went with the piece of work.

        A faster host does as much less, and no more than its exposed part goes away: the device is then what is waited for. On a slower one the
        exposed part grows, and of what was hidden comes out what no longer fits beside the device.
        """
        if self.host_work is None:
            return tax
        times = 1 / (1 + self.host_work)
        if times <= 1:
            return (1 + tax) * (1 - min(self.host_share, 1 - times)) - 1
        return (1 + tax) * (1 + max(self.host_share * (times - 1), self.host_whole * times - 1)) - 1


def load_taxes(
    rates_per_s: Iterable[float],
    sides: Mapping[tuple[str, float], CellEstimates],
    configs: tuple[str, str, str],
) -> Iterable[LoadTax]:
    """
    Args:
        sides: (configuration, rate) -> its cell; one that is missing makes its taxes unavailable.
        configs: plain, plain's second launch, the connector.
    """
    for rate in rates_per_s:
        cells = [sides.get((config, rate)) for config in configs]
        plain_cell, again_cell, own_cell = cells
        of_steps = _step_shares(own_cell)
        for metric, (name, q) in LATENCIES.items():
            plain, again, own = (
                unavailable(f"{who} has no usable cell at {rate:g} req/s")
                if side is None
                else side.latency(name, q)
                for who, side in zip(("plain", "plain again", "the connector"), cells, strict=True)
            )
            yield LoadTax(
                rate,
                metric,
                relative(own, _mean(plain, again)),
                relative(again, plain),
                (plain.point, again.point, own.point),
                _work_ratio(own_cell, plain_cell, again_cell),
                *(of_steps if name == "tpot_ms" else (1.0, 1.0)),
                late_ratio(name, own_cell, (plain_cell, again_cell)),
            )


def _mean(plain: Estimate, again: Estimate) -> Estimate:
    """Geometric. What drifts on the host while the three are served moves it as it moves the one between them."""
    for side in (plain, again):
        if side.point is None:
            return side
    both = combine(plain, again)
    a, b = both.replicates
    assert plain.point is not None and again.point is not None
    return both.estimate(math.sqrt(plain.point * again.point), np.sqrt(a * b))


def _work_ratio(own: CellEstimates | None, *plains: CellEstimates | None) -> float | None:
    a, b, c = (_work_us(side) for side in (own, *plains))
    return None if a is None or b is None or c is None else a / math.sqrt(b * c) - 1


def _work_us(side: CellEstimates | None) -> float | None:
    return None if side is None else work_us(side.cell.samples.host)


def _step_shares(side: CellEstimates | None) -> tuple[float, float]:
    """Of the steps' time: what the device was not busy, and what the host was, hidden or not. Both 1 where that is not known.

    A token of an answer takes a step. A first token also takes what client and server do before and after it, beside a busy device, so
    nothing bounds the host's part of TTFT. The host's whole part is a step less the slack that nine of ten steps had.
    """
    if side is None or side.cell.steps is None:
        return 1.0, 1.0
    clock = side.cell.document.health.device_clock
    steps_us = side.cell.steps.load().step_duration_us
    steps_s = float(steps_us.sum()) * NS_PER_US / NS_PER_S
    if not clock or steps_s <= 0:
        return 1.0, 1.0
    window = side.cell.window
    busy_s = clock.device_busy_share * (window.t_stop_ns - window.window_start_ns) / NS_PER_S
    exposed = min(1.0, max(0.0, 1 - busy_s / steps_s))
    whole = 1 - clock.slack_us["p10"] / float(np.median(steps_us))
    return exposed, min(1.0, max(exposed, whole))
