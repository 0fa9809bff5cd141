"""Questions that figures and comparison ask of a campaign, beside those that its aggregate answers itself.

Nothing is computed but look-ups; what is not known is None, so that a figure asks once and leaves out what it is not told.
"""

import re
from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

from connector_tax.base.documents.aggregate import (
    Aggregate,
    MeasuredCell,
    TaxRow,
    VirtualGpu,
)
from connector_tax.base.documents.identity import DeviceIdentity
from connector_tax.base.documents.rates import Reference
from connector_tax.base.opening import printable
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.labels import reason_text

Tax = TaxRow
OF_BLOCKS = re.compile(r"(a|b|r[1-9]\d*)\Z")


class OfConfig(Protocol):
    @property
    def config(self) -> str: ...


Row = TypeVar("Row", bound=OfConfig)


def in_order(aggregate: Aggregate, found: Iterable[Row]) -> list[Row]:
    """As the campaign lists their configuration; unknown ones come last."""
    place = {config: k for k, config in enumerate(aggregate.config_ids)}
    return sorted(found, key=lambda row: place.get(row.config, len(place)))


def why_absent(aggregate: Aggregate, config: str) -> str:
    """``"mooncake_both was skipped: <reason>"``, for a configuration a figure needs and does not have."""
    state = aggregate.configs.get(config)
    if state is None:
        return f"{config} is not part of this campaign"
    word = {
        "measured": "has no usable number here",
        "partial": "was measured in part only",
        "skipped": "was skipped",
        "failed": "failed",
        "missing": "is missing",
    }[state.status]
    return f"{config} {word}" + (f": {state.bare_reason}" if state.bare_reason else "")


def why_no_number(aggregate: Aggregate, config: str) -> str:
    """``"it was skipped: <reason>"``: the same behind the configuration's name."""
    state = aggregate.configs.get(config)
    if state is None:
        return "it is not part of this campaign"
    reason = state.bare_reason
    if state.status == "missing":
        return f"it was {reason or 'not measured'}"
    if state.status == "failed" and reason.startswith("failed"):
        return f"it {reason}"
    word = {
        "measured": "it has no usable number here",
        "partial": "it was measured in part only",
        "skipped": "it was skipped",
        "failed": "it failed",
    }[state.status]
    return f"{word}: {reason}" if reason else word


def connectors_or_all(configs: Collection[str]) -> list[str]:
    """Return the connectors among them; where there is none, all: plain vLLM with a connector's settings is no connector."""
    return [c for c in configs if is_connector(c)] or list(configs)


def without_number(aggregate: Aggregate, *, metric: str, reference: str) -> dict[str, str]:
    """Return connectors of the campaign that have no tax there -> why, in the campaign's order."""
    taxes = {t.config: t for t in aggregate.main_taxes if (t.metric, t.reference) == (metric, reference)}
    lost = [c for c in aggregate.config_ids if is_connector(c) and not (c in taxes and taxes[c].known)]
    return {
        c: reason_text(taxes[c].reason, taxes[c].subject)
        if c in taxes and taxes[c].reason
        else why_no_number(aggregate, c)
        for c in lost
    }


def rated_cells(aggregate: Aggregate, phase: str, config: str) -> list[MeasuredCell]:
    """Usable cells of one configuration and phase that have a rate, in order of rate."""
    return sorted(
        (cell for cell in aggregate.measured(phase, config) if cell.rate_per_s > 0),
        key=lambda cell: cell.rate_per_s,
    )


def phase_a_shape(aggregate: Aggregate) -> tuple[int, int] | None:
    return next((cell.shape for cell in aggregate.cells if cell.phase == "a"), None)


def excluded_cells(
    aggregate: Aggregate,
    phase: str,
    taxes: Iterable[Tax] = (),
    rate_per_s: float | None = None,
    among: Collection[str] | None = None,
) -> list[str]:
    """``"mooncake_both r32_4096x256 (engine died)"`` for each cell that was left out; ``"plain r1/r4_256x16 (...)"`` of another phase.

    Args:
        taxes: what is drawn; the cells of blocks of launches at the rates and shapes of those over blocks count as well, and those of
            another phase at the rates and shapes of the taxes that are drawn from it.
        rate_per_s: of the only rate that the figure is of; None where it is of several.
        among: the configurations that the figure is about; None where it is about all.
    """
    drawn = list(taxes)
    over_blocks = {(tax.rate_per_s, tax.shape) for tax in drawn if blocks_of(tax) is not None}
    of_phase = {(str(tax.phase), tax.rate_per_s, tax.shape) for tax in drawn}
    return [
        f"{cell.config} {'' if cell.phase == phase else f'{cell.phase}/'}{cell.cell_id} "
        f"({'; '.join(cell.reasons) or 'files missing or unreadable'})"
        for cell in aggregate.cells
        if (
            cell.phase == phase
            or (cell.phase, cell.rate_per_s, cell.shape) in of_phase
            or ((cell.rate_per_s, cell.shape) in over_blocks and OF_BLOCKS.match(cell.phase))
        )
        and not isinstance(cell, MeasuredCell)
        and cell.recorded
        and rate_per_s in (None, cell.rate_per_s)
        and (among is None or cell.config in among)
    ]


def reference_rate(aggregate: Aggregate, reference: Reference) -> float | None:
    return None if aggregate.reference_rates is None else aggregate.reference_rates.per_s(reference)


def reference_flags(aggregate: Aggregate) -> tuple[str, ...]:
    return () if aggregate.reference_rates is None else aggregate.reference_rates.flags


def saturation_rate(aggregate: Aggregate, config: str) -> float | None:
    found = aggregate.saturation.get(config)
    return None if found is None else found.saturation_rate_per_s


def blocks_of(tax: Tax) -> int | None:
    """Over how many blocks of launches it was taken; None for one launch."""
    return None if tax.of_one_launch else tax.n_blocks


def tax_rows(aggregate: Aggregate, *, metric: str, reference: str, phase: str) -> list[TaxRow]:
    """Taxes of one phase's cells with a number, of configurations other than plain."""
    return [
        tax
        for tax in aggregate.taxes
        if (tax.metric, tax.reference, tax.phase) == (metric, reference, phase)
        and tax.known
        and tax.config != "plain"
    ]


def main_taxes(aggregate: Aggregate, *, metric: str, reference: str) -> dict[str, Tax]:
    """Per configuration, the one tax that stands for ``reference``, as the analysis chose it; those with a number."""
    found = {
        tax.config: tax
        for tax in aggregate.main_taxes
        if (tax.metric, tax.reference) == (metric, reference) and tax.known
    }
    return {tax.config: tax for tax in in_order(aggregate, (found[config] for config in sorted(found)))}


def standing_tax(aggregate: Aggregate, row: TaxRow) -> Tax:
    """The tax that stands for the configuration, rate and shape of one cell's: another where the analysis chose another, also one
    that has a reason in place of a number. A cell that is lost empties no place in which another one stands."""
    chosen = next((tax for tax in aggregate.main_taxes if tax.place == row.place), row)
    instead = not _is_there(aggregate, row) and _is_there(aggregate, chosen)
    return chosen if chosen.known or row.known or instead else row


def _is_there(aggregate: Aggregate, tax: Tax) -> bool:
    """Whether its cell counts; one over blocks has no single cell."""
    if tax.phase is None:
        return True
    return any(cell.cell_id == tax.cell_id for cell in aggregate.measured(tax.phase, tax.config))


def virtual_name(gpu: VirtualGpu | DeviceIdentity) -> str:
    """``NVIDIA H200 (profile h200, 0123456789abcdef)``; names come from files that people write."""
    name, profile, sha256 = (printable(text or "unknown", 96) for text in (gpu.name, gpu.profile, gpu.sha256))
    return f"{name} (profile {profile}, {sha256})"


def on_embedded_engine(aggregate: Aggregate) -> bool:
    """Whether its numbers are those of a model of a server."""
    provenance = aggregate.provenance
    return bool(provenance.versions.get("emulator")) or provenance.engine_kind == "emulator"


def source_note(aggregate: Aggregate) -> str:
    """What every picture of this campaign must say about itself; empty for a campaign on a GPU."""
    provenance = aggregate.provenance
    if on_embedded_engine(aggregate):
        return "Embedded engine: numbers of a model, they say nothing about real connectors"
    if (gpu := provenance.clock) is not None:
        return f"Virtual {virtual_name(gpu)}: the device was a clock, without kernels, memory traffic or transfers"
    if provenance.gpu or not (provenance.versions or provenance.host):
        return ""
    cores = provenance.host.get("cores")
    with_cores = f" with {cores:.0f} cores" if isinstance(cores, int | float) and cores else ""
    return f"CPU host{with_cores}: not the numbers of a GPU"
