"""Compares injected taxes with measured ones: those of a cost model, and test connectors' delays on a virtual
GPU.

A test connector (``launch/plugins/burning_connector.py``) spends a fixed number of microseconds in
``build_connector_meta``, which vLLM's scheduler calls once per step. The measured value is the difference
from the connector without a delay, per block of launches. docs/virtual-gpu.md says which numbers grow by the
delay, and which do not.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from operator import itemgetter

import numpy as np

from connector_tax.base.config import CampaignConfig
from connector_tax.base.documents.aggregate import BurnMetric, BurnRow, Burns, Ends, PutIn, PutInRow, Quantity
from connector_tax.base.documents.rates import PutInFile, ReferenceRatesFile
from connector_tax.base.records.cell import Phase, is_repeat, phase_place
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.bootstrap import Estimate, unavailable
from connector_tax.base.statistics.distributions import mean_interval
from connector_tax.read.stats.cells import CellEstimates, Estimates
from connector_tax.read.stats.launches import MIN_BLOCKS, headline_shape, is_headline_cell
from connector_tax.read.stats.taxes import Tax


def injected_taxes(
    injected: PutInFile | None, rates: ReferenceRatesFile | None, chosen: Sequence[Tax], confidence: float
) -> PutIn | None:
    """Compare the main taxes at the reference rates with the model's; None if no injected tax is known."""
    if injected is None or rates is None:
        return None
    main = {row.place: row for row in (t.row(confidence) for t in chosen)}
    rows = [
        PutInRow(
            config=tax.config,
            metric=tax.metric,
            reference=reference,
            rate_per_s=tax.rate_per_s,
            tax=tax.tax,
            held=_held(
                tax.tax,
                main.get((tax.config, tax.metric, tax.rate_per_s, tax.input_tokens, tax.output_tokens)),
            ),
        )
        for tax in injected.taxes
        for reference in rates.references_at(tax.rate_per_s)
    ]
    held_by_tax = {(r.config, r.metric, r.rate_per_s): r.held for r in rows if r.held is not None}
    return PutIn(
        launches=injected.launches, asked=len(held_by_tax), held=sum(held_by_tax.values()), taxes=tuple(rows)
    )


def _held(number: float | None, interval: Ends | None) -> bool | None:
    """Return whether the interval contains it; None if either is missing, or the interval is open."""
    if number is None or interval is None or interval.low is None or interval.high is None:
        return None
    return interval.low <= number <= interval.high


BURNING, MODULE = "BurningConnector", "burning_connector"
METRICS: dict[BurnMetric, tuple[Callable[[CellEstimates], Estimate], float]] = {
    "hooks_p50_us": (lambda cell: cell.step("connector_total_us", 50.0), 1.0),
    "step_p50_us": (lambda cell: cell.step("step_duration_us", 50.0), 1.0),
    "tpot_p50_us": (lambda cell: cell.latency("tpot_ms", 50.0), 1e3),
    "tpot_p90_us": (lambda cell: cell.latency("tpot_ms", 90.0), 1e3),
    "ttft_p90_us": (lambda cell: cell.latency("ttft_ms", 90.0), 1e3),
}
# Codes of why nothing follows from a delay.
FIRST_TOKEN, HIDDEN, OVERLAP = "first_token", "hidden", "overlap"

# A test connector's cell in one block, and that of the connector without a delay.
Pair = tuple[CellEstimates, CellEstimates]


def injected_delays(
    config: CampaignConfig, estimates: Estimates, rates: ReferenceRatesFile | None, confidence: float
) -> Burns | None:
    """Compare the test connectors' delays with the measurements.

    None on another engine, without test connectors, or without one that has no delay.
    """
    delays_us = known_delays_us(config)
    base = next((c for c, us in delays_us.items() if us == 0), None)
    if base is None or rates is None or len(delays_us) < 2:
        return None
    rows = []
    for reference, rate in rates.apart():
        cells = {c: _blocks(estimates, c, rate) for c in delays_us}
        for config_id, delay_us in delays_us.items():
            if config_id == base:
                continue
            blocks = sorted(cells[config_id].keys() & cells[base].keys(), key=phase_place)
            pairs = [(cells[config_id][b], cells[base][b]) for b in blocks]
            reasons = _why_nothing_follows(config, (config_id, base), pairs)
            for metric in METRICS:
                injected_us = None if metric in reasons else delay_us
                measured = _mean_difference(metric, pairs, confidence)
                row = BurnRow(
                    config=config_id,
                    metric=metric,
                    reference=reference,
                    rate_per_s=rate,
                    put_in_us=injected_us,
                    reason=reasons.get(metric),
                    found=measured,
                    held=_held(injected_us, measured),
                )
                rows.append(row)
    held = [row.held for row in rows if row.held is not None]
    return Burns(base=base, asked=len(held), held=sum(held), rows=tuple(rows))


def known_delays_us(config: CampaignConfig) -> dict[str, float]:
    """Return test connector -> its delay per step, only on a virtual GPU and without other delays."""
    if config.engine.kind != "virtual_gpu":
        return {}
    delays_us = {}
    for connector in config.connectors:
        transfer = connector.kv_transfer_config or {}
        if (transfer.get("kv_connector"), transfer.get("kv_connector_module_path")) == (BURNING, MODULE):
            extra = {k: v for k, v in (transfer.get("kv_connector_extra_config") or {}).items() if v != 0}
            burn_us = extra.get("burn_us", {}).get("build_connector_meta")
            alone = extra == {"burn_us": {"build_connector_meta": burn_us}}
            if alone and isinstance(burn_us, int | float) and burn_us >= 0:
                delays_us[connector.id] = burn_us
    return delays_us


def _synchronous(config: CampaignConfig, connector_id: str) -> bool:
    """Return whether its launches are synchronous, and no verbatim argument can change that."""
    engine = config.engine
    appended = [*engine.extra_args, *config.connector(connector_id).extra_args]
    return engine.args.get("async_scheduling") is False and not any("async" in a for a in appended)


def _blocks(estimates: Estimates, config: str, rate: float) -> dict[Phase, CellEstimates]:
    """Return its cells of Phase A's load, one per block of launches."""
    shape = headline_shape(estimates)
    return {
        phase: cell_estimates
        for (c, phase, _), cell_estimates in estimates.items()
        if c == config
        and (phase in ("a", "b") or is_repeat(phase))
        and is_headline_cell(cell_estimates, phase, shape, rate)
    }


def _why_nothing_follows(
    config: CampaignConfig, configs: Collection[str], pairs: Sequence[Pair]
) -> dict[BurnMetric, str]:
    """Return metric -> why no growth follows from the delay.

    For steps and TPOT it follows only if each request of a cell was sent after the previous one had ended.
    """
    reasons: dict[BurnMetric, str] = {"ttft_p90_us": FIRST_TOKEN}
    steps: tuple[BurnMetric, ...] = ("step_p50_us", "tpot_p50_us", "tpot_p90_us")
    if not all(_synchronous(config, c) for c in configs):
        return reasons | dict.fromkeys(steps, HIDDEN)
    alone = all(_alone(cell.cell.requests) for pair in pairs for cell in pair)
    return reasons if alone else reasons | dict.fromkeys(steps, OVERLAP)


def _alone(requests: Collection[RequestRecord]) -> bool:
    """Return whether each request had ended, successfully or not, before the next was sent."""
    spans_ns = [(r.t_send_ns, r.t_end_ns) for r in requests if r.t_send_ns is not None]
    spans_ns.sort(key=itemgetter(0))
    return all(
        end_ns is not None and end_ns <= next_send_ns for (_, end_ns), (next_send_ns, _) in pairwise(spans_ns)
    )


def _mean_difference(metric: BurnMetric, pairs: Sequence[Pair], confidence: float) -> Quantity:
    """Return the mean difference over blocks, with Student's t.

    Unavailable if a usable cell has no number, since the others would flatter.
    """
    estimate, scale = METRICS[metric]
    estimate_pairs = [(estimate(own), estimate(base)) for own, base in pairs]
    missing = [e.reason or "unavailable" for pair in estimate_pairs for e in pair if e.point is None]
    if missing or len(pairs) < MIN_BLOCKS:
        return unavailable([*missing, "few_blocks"][0], len(pairs)).quantity(confidence)
    own, base = np.array([[e.point for e in pair] for pair in estimate_pairs], dtype=np.float64).T * scale
    point, low, high = mean_interval(own - base, confidence)
    return Quantity(point=point, low=low, high=high, n=len(pairs))
