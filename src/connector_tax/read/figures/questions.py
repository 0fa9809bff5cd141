"""Questions that figures and comparison ask of a campaign, beside those that its aggregate answers itself.

Nothing is computed but look-ups; what is not known is None, so that a figure asks once and leaves out what it is not told.
"""

from collections.abc import Collection

from connector_tax.base.documents.aggregate import (
    Aggregate,
    MeasuredCell,
    TaxRow,
    VirtualGpu,
)
from connector_tax.base.documents.identity import DeviceIdentity
from connector_tax.base.documents.rates import Reference
from connector_tax.base.files import printable
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.labels import label, problem_text

Tax = TaxRow


def why_absent(aggregate: Aggregate, config: str) -> str:
    """``"mooncake_both was skipped: <reason>"``, for a configuration a figure needs and does not have."""
    state = aggregate.configs.get(config)
    words = f"{config} {label('absent', 'not_asked' if state is None else state.status)}"
    why = problem_text(None if state is None else state.reason)
    return f"{words}: {why}" if why else words


def connectors_or_all(configs: Collection[str]) -> list[str]:
    """Return the connectors among them; where there is none, all: plain vLLM with a connector's settings is no connector."""
    return [c for c in configs if is_connector(c)] or list(configs)


def rated_cells(aggregate: Aggregate, phase: str, config: str) -> list[MeasuredCell]:
    """Usable cells of one configuration and phase that have a rate, in order of rate."""
    return sorted(
        (cell for cell in aggregate.measured(phase, config) if cell.rate_per_s > 0),
        key=lambda cell: cell.rate_per_s,
    )


def phase_a_shape(aggregate: Aggregate) -> tuple[int, int] | None:
    return next((cell.shape for cell in aggregate.cells if cell.phase == "a"), None)


def reference_rate(aggregate: Aggregate, reference: Reference) -> float | None:
    return None if aggregate.reference_rates is None else aggregate.reference_rates.per_s(reference)


def reference_flags(aggregate: Aggregate) -> tuple[str, ...]:
    return () if aggregate.reference_rates is None else aggregate.reference_rates.flags


def blocks_of(tax: Tax) -> int | None:
    """Over how many blocks of launches it was taken; None for one launch."""
    return None if tax.of_one_launch else tax.n_blocks


def main_taxes(aggregate: Aggregate, *, metric: str, reference: str) -> dict[str, Tax]:
    """Per configuration, the one tax that stands for ``reference``, as the analysis chose it; those with a number."""
    found = {
        tax.config: tax
        for tax in aggregate.main_taxes
        if (tax.metric, tax.reference) == (metric, reference) and tax.known
    }
    return {c: found[c] for c in aggregate.config_ids if c in found}


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
    return aggregate.provenance.measured_on.kind == "embedded_engine"


def source_note(aggregate: Aggregate) -> str:
    """What every picture of this campaign must say about itself; empty for a campaign on a GPU."""
    provenance = aggregate.provenance
    gpu = "" if (clock := provenance.clock) is None else virtual_name(clock)
    return label("note", provenance.measured_on.kind).format(gpu=gpu)
