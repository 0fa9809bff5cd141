"""Questions that the page asks of a campaign, beside those that its aggregate answers itself."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from connector_tax.base.documents.aggregate import (
    Aggregate,
    MainTaxRow,
    MeasuredCell,
    TaxRow,
    VirtualGpu,
)
from connector_tax.base.documents.aggregate.words import Reference as Reference
from connector_tax.base.opening import printable

REFERENCES: tuple[Reference, ...] = ("ref_safe", "ref_load")
Tax = TaxRow | MainTaxRow


class OfConfig(Protocol):
    @property
    def config(self) -> str: ...


Row = TypeVar("Row", bound=OfConfig)


def in_order(aggregate: Aggregate, found: Iterable[Row]) -> list[Row]:
    """As the campaign lists their configuration; unknown ones come last."""
    place = {config: k for k, config in enumerate(aggregate.config_ids)}
    return sorted(found, key=lambda row: place.get(row.config, len(place)))


def confidence_words(aggregate: Aggregate) -> str:
    """``95 %``, as it stands before ``interval``."""
    return f"{aggregate.provenance.confidence * 100:g} %"


def reference_rate(aggregate: Aggregate, reference: Reference) -> float | None:
    return None if aggregate.reference_rates is None else aggregate.reference_rates.per_s(reference)


def loaded_cells(aggregate: Aggregate, config: str) -> list[MeasuredCell]:
    """Usable cells of Phase A at ref_safe."""
    at = reference_rate(aggregate, "ref_safe")
    return [cell for cell in aggregate.measured("a", config) if cell.rate_per_s == at]


def blocks_of(tax: Tax) -> int | None:
    """Over how many blocks of launches it was taken; None for one launch."""
    return tax.blocks if isinstance(tax, MainTaxRow) else None


def main_taxes(aggregate: Aggregate, *, metric: str, reference: str) -> dict[str, Tax]:
    """Per configuration, the one tax that stands for ``reference``, as the analysis chose it; those with a number."""
    found = {
        tax.config: tax
        for tax in aggregate.chosen_taxes
        if (tax.metric, tax.reference) == (metric, reference) and tax.known
    }
    return {tax.config: tax for tax in in_order(aggregate, (found[config] for config in sorted(found)))}


def standing_tax(aggregate: Aggregate, row: TaxRow) -> Tax:
    """The tax that stands for the configuration, rate and shape of one cell's: another where the analysis chose another, also one
    that has a reason in place of a number."""
    chosen = next((tax for tax in aggregate.chosen_taxes if tax.place == row.place), row)
    return chosen if chosen.known or row.known else row


def why_not_phase_a(aggregate: Aggregate, tax: Tax) -> str:
    """Of a tax that another phase's launch gives: why Phase A's cell does not; empty where nothing says it."""
    found = (t.reason for t in aggregate.taxes if t.phase == "a" and t.place == tax.place)
    return next(found, None) or ""


def why_absent(aggregate: Aggregate, config: str) -> str:
    """``"mooncake_both was skipped: <reason>"``, for a configuration that is needed and has no number."""
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


def virtual_name(gpu: VirtualGpu) -> str:
    """``NVIDIA H200 (profile h200, 0123456789abcdef)``; names come from files that people write."""
    name, profile, sha256 = (printable(text or "unknown", 96) for text in (gpu.name, gpu.profile, gpu.sha256))
    return f"{name} (profile {profile}, {sha256})"


def on_embedded_engine(aggregate: Aggregate) -> bool:
    """Whether its numbers are those of a model of a server."""
    provenance = aggregate.provenance
    return bool(provenance.versions.get("emulator")) or provenance.engine_kind == "emulator"


def cpu_note(aggregate: Aggregate) -> str:
    """What a campaign without a GPU must say about itself; empty where there is one, and where nobody knows."""
    provenance = aggregate.provenance
    if provenance.gpu or not (provenance.versions or provenance.host):
        return ""
    cores = provenance.host.get("cores")
    with_cores = f" with {cores:.0f} cores" if isinstance(cores, int | float) and cores else ""
    return f"CPU host{with_cores}: not the numbers of a GPU"
