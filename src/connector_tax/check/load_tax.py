"""One latency at one load: the connector's tax, what plain differs from itself by, and how much of the tax the host's own speed may be."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from connector_tax.intervals.bootstrap import Estimate, unavailable
from connector_tax.stats.cells import CellEstimates
from connector_tax.stats.taxes import relative
from connector_tax.units import NS_PER_S, NS_PER_US

# Beside the p90 that taxes are judged by, the medians.
MEASURES = {
    "ttft_p50": ("ttft_ms", 50.0),
    "ttft_p90": ("ttft_ms", 90.0),
    "tpot_p50": ("tpot_ms", 50.0),
    "tpot_p90": ("tpot_ms", 90.0),
}


@dataclass(frozen=True, slots=True)
class LoadTax:
    """
    Attributes:
        own: connector / plain - 1, of the two launches.
        floor: plain again / plain - 1.
        ms: metric in milliseconds, of (plain, plain again, connector).
        host_work: by how much longer a fixed piece of work took the host beside the connector than beside plain, as a ratio less one;
            None where that is not known.
        host_share: of the connector's latency, what the host can have spent at most.
    """

    rate_per_s: float
    metric: str
    own: Estimate
    floor: Estimate
    ms: tuple[float | None, float | None, float | None]
    host_work: float | None = None
    host_share: float = 1.0

    def at_equal_speed(self, tax: float) -> float:
        """What would be left of ``tax`` at plain's speed, if all of ``host_share`` went with the piece of work."""
        if self.host_work is None:
            return tax
        return (1 + tax) * (1 - self.host_share * (1 - 1 / (1 + self.host_work))) - 1


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
        plain_cell, _, own_cell = cells
        for metric, (name, q) in MEASURES.items():
            plain, again, own = (
                unavailable(f"{who} has no usable cell at {rate:g} req/s")
                if side is None
                else side.latency(name, q)
                for who, side in zip(("plain", "plain again", "the connector"), cells, strict=True)
            )
            yield LoadTax(
                rate,
                metric,
                relative(own, plain),
                relative(again, plain),
                (plain.point, again.point, own.point),
                _work_ratio(own_cell, plain_cell),
                _step_share(own_cell) if name == "tpot_ms" else 1.0,
            )


def _work_ratio(own: CellEstimates | None, plain: CellEstimates | None) -> float | None:
    a, b = (_work_us(side) for side in (own, plain))
    return None if a is None or not b else a / b - 1


def _work_us(side: CellEstimates | None) -> float | None:
    host = None if side is None else side.cell.samples.host
    return None if host is None else host.cpu_work_us_mean


def _step_share(side: CellEstimates | None) -> float:
    """Of the steps' time, what the device was not busy: while it was, the host's work was hidden. 1 where that is not known.

    A token of an answer takes a step. A first token also takes what client and server do before and after it, beside a busy device, so
    nothing bounds the host's share of TTFT.
    """
    if side is None or side.cell.steps is None:
        return 1.0
    clock = side.cell.document["health"].get("device_clock")
    steps_s = float(side.cell.steps.load().step_duration_us.sum()) * NS_PER_US / NS_PER_S
    if not clock or steps_s <= 0:
        return 1.0
    window = side.cell.window
    busy_s = float(clock["device_busy_share"]) * (window.t_stop_ns - window.window_start_ns) / NS_PER_S
    return min(1.0, max(0.0, 1 - busy_s / steps_s))
