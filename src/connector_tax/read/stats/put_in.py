"""What was put in beside what was found: the taxes that a model gives, and the burns of test connectors on a virtual GPU.

A test connector (``launch/plugins/burning_connector.py``) burns so many microseconds in ``build_connector_meta``, which vLLM's scheduler calls once
in every step. Found is the difference from the one that burns nothing, block by block of launches. docs/virtual-gpu.md says why a
number grows by the burn, and of which numbers that does not follow.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Annotated

import msgspec
import numpy as np

from connector_tax.base.documents.aggregate import BurnMetric, BurnRow, Burns, PutIn, PutInRow, Quantity
from connector_tax.base.documents.put_in import PutInFile, PutInTax
from connector_tax.base.documents.rates import ReferenceRatesFile
from connector_tax.base.records.bounds import Foreign
from connector_tax.base.records.cell import Phase, is_repeat, phase_place
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.statistics.bootstrap import Estimate
from connector_tax.base.statistics.student import mean_interval
from connector_tax.read.stats.cells import CellEstimates, Estimates
from connector_tax.read.stats.launches import MIN_BLOCKS, headline_shape, is_headline_cell
from connector_tax.read.stats.taxes import Tax


def put_in(
    found: PutInFile | None, rates: ReferenceRatesFile | None, chosen: Sequence[Tax], confidence: float
) -> PutIn | None:
    """Of the taxes that stand at the reference rates; None where nothing was put in that is known."""
    if found is None or rates is None:
        return None
    rows = [
        PutInRow(
            config=tax.config,
            metric=tax.metric,
            reference=reference,
            rate_per_s=tax.rate_per_s,
            tax=tax.tax,
            held=_tax_held(tax, chosen, confidence),
        )
        for tax in found.taxes
        for reference in rates.references_at(tax.rate_per_s)
    ]
    once = {(r.config, r.metric, r.rate_per_s): r.held for r in rows if r.held is not None}
    return PutIn(launches=found.launches, asked=len(once), held=sum(once.values()), taxes=tuple(rows))


def _tax_held(tax: PutInTax, chosen: Sequence[Tax], confidence: float) -> bool | None:
    place = (tax.config, tax.metric, tax.rate_per_s, tax.input_tokens, tax.output_tokens)
    own = (m.row(confidence) for m in chosen)
    interval = next((row.interval for row in own if row.place == place), None)
    if tax.tax is None or interval is None or interval.low is None or interval.high is None:
        return None
    return interval.low <= tax.tax <= interval.high


BURNING, MODULE = "BurningConnector", "burning_connector"
HOOKS: BurnMetric = "hooks_p50_us"
METRICS: dict[BurnMetric, Callable[[CellEstimates], tuple[Estimate, float]]] = {
    HOOKS: lambda cell: (cell.step("connector_total_us", 50.0), 1.0),
    "step_p50_us": lambda cell: (cell.step("step_duration_us", 50.0), 1.0),
    "tpot_p50_us": lambda cell: (cell.latency("tpot_ms", 50.0), 1e3),
    "tpot_p90_us": lambda cell: (cell.latency("tpot_ms", 90.0), 1e3),
    "ttft_p90_us": lambda cell: (cell.latency("ttft_ms", 90.0), 1e3),
}
# Codes of why nothing follows from a burn.
FIRST_TOKEN, HIDDEN, OVERLAP = "first_token", "hidden", "overlap"

Cells = dict[Phase, CellEstimates]


class _BurnUs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    build_connector_meta: Annotated[float, msgspec.Meta(ge=0, le=1e9)]


_Nothing = Annotated[float, msgspec.Meta(ge=0, le=0)]


class _Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a test connector of a known burn is told, and nothing else."""

    burn_us: _BurnUs
    per_cached_block_us: _Nothing = 0.0
    per_running_us: _Nothing = 0.0


@dataclass(frozen=True, slots=True)
class _Pair:
    """A test connector's cells and those of the one that burns nothing, by block."""

    own: Cells
    base: Cells

    @property
    def blocks(self) -> list[Phase]:
        return sorted(self.own.keys() & self.base.keys(), key=phase_place)

    @property
    def alone(self) -> bool:
        """Whether no request of any cell was sent before the one before it had ended."""
        return all(_alone(side[b].cell.requests) for side in (self.own, self.base) for b in self.blocks)


def burns(
    config: Foreign, estimates: Estimates, rates: ReferenceRatesFile | None, confidence: float
) -> Burns | None:
    """None where no burn is known: on another engine, without test connectors, and without one that burns nothing.

    Args:
        config: of ``campaign.json``.
    """
    known = known_burns_us(config)
    base = next((c for c, us in known.items() if us == 0), None)
    if base is None or rates is None or len(known) < 2:
        return None
    rows = []
    for reference, rate in rates.apart():
        cells = {c: _blocks(estimates, c, rate) for c in known}
        for config_id, burn_us in known.items():
            pair = _Pair(cells[config_id], cells[base])
            for metric in METRICS if config_id != base else ():
                synchronous = _synchronous(config, config_id) and _synchronous(config, base)
                reason = _why_nothing_follows(metric, synchronous, pair)
                put_in = burn_us if reason is None else None
                found = _found(metric, pair, confidence)
                rows.append(
                    BurnRow(
                        config=config_id,
                        metric=metric,
                        reference=reference,
                        rate_per_s=rate,
                        put_in_us=put_in,
                        reason=reason,
                        found=found,
                        held=_held(put_in, found),
                    )
                )
    told = [row.held for row in rows if row.held is not None]
    return Burns(base=base, asked=len(told), held=sum(told), rows=tuple(rows))


def known_burns_us(config: Foreign) -> dict[str, float]:
    """Test connector -> what it burns in every step; of a virtual GPU alone, and of those that burn nothing else."""
    if config["engine"]["kind"] != "virtual_gpu":
        return {}
    found = {}
    for connector in config["connectors"]:
        transfer = connector.get("kv_transfer_config") or {}
        if (transfer.get("kv_connector"), transfer.get("kv_connector_module_path")) == (BURNING, MODULE):
            try:
                told = msgspec.convert(transfer.get("kv_connector_extra_config"), _Told)
            except msgspec.ValidationError:
                continue
            found[connector["id"]] = told.burn_us.build_connector_meta
    return found


def _synchronous(config: Foreign, connector_id: str) -> bool:
    """Whether its launches are told so, and no argument that is appended verbatim may say otherwise."""
    engine = config["engine"]
    own = next(c for c in config["connectors"] if c["id"] == connector_id)
    appended = [*engine.get("extra_args", ()), *own.get("extra_args", ())]
    return engine.get("args", {}).get("async_scheduling") is False and not any("async" in a for a in appended)


def _blocks(estimates: Estimates, config: str, rate: float) -> Cells:
    """Its cells of Phase A's load, one of each block of launches."""
    shape = headline_shape(estimates)
    return {
        phase: own
        for (c, phase, _), own in estimates.items()
        if c == config
        and (phase in ("a", "b") or is_repeat(phase))
        and is_headline_cell(own, phase, shape, rate)
    }


def _why_nothing_follows(metric: BurnMetric, synchronous: bool, pair: _Pair) -> str | None:
    if metric == HOOKS:
        return None
    if metric == "ttft_p90_us":
        return FIRST_TOKEN
    if not synchronous:
        return HIDDEN
    return None if pair.alone else OVERLAP


def _alone(requests: Collection[RequestRecord]) -> bool:
    """Whether each had ended, well or not, before the next one was sent."""
    sent = [(r.t_send_ns, r.t_end_ns) for r in requests if r.t_send_ns is not None]
    sent.sort(key=itemgetter(0))
    return all(end is not None and end <= later for (_, end), (later, _) in pairwise(sent))


def _found(metric: BurnMetric, pair: _Pair, confidence: float) -> Quantity:
    """The mean difference over blocks; Student's t. None where a cell that counts has no number: the others would flatter it."""
    blocks = pair.blocks
    values: Mapping[str, list[float]] = {"own": [], "base": []}
    for block in blocks:
        for name, side in (("own", pair.own), ("base", pair.base)):
            estimate, scale = METRICS[metric](side[block])
            if estimate.point is None:
                return _none(estimate.reason or "unavailable", len(blocks))
            values[name].append(estimate.point * scale)
    if len(blocks) < MIN_BLOCKS:
        return _none("few_blocks", len(blocks))
    point, low, high = mean_interval(np.array(values["own"]) - np.array(values["base"]), confidence)
    return Quantity(point=point, low=low, high=high, n=len(blocks))


def _none(reason: str, n: int) -> Quantity:
    return Quantity(point=None, low=None, high=None, n=n, reason=reason)


def _held(put_in_us: float | None, found: Quantity) -> bool | None:
    if put_in_us is None or found.low is None or found.high is None:
        return None
    return found.low <= put_in_us <= found.high
