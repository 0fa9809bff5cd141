"""Words and look-ups for figures, page and comparison: the words of codes (``workflow/report/labels.yaml``),
formatted numbers, and derived facts of an aggregate.

A look-up returns None for the unknown, which a figure leaves out.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import cache

import yaml

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.aggregate import (
    Aggregate,
    Interval,
    LatencyMetric,
    MeasuredCell,
    Problem,
    TaxRow,
    VirtualGpu,
)
from connector_tax.base.documents.identity import DeviceIdentity
from connector_tax.base.documents.rates import Reference
from connector_tax.base.files import printable
from connector_tax.base.records.cell import is_phase, is_repeat, phase_word
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.digits import digits_apart
from connector_tax.base.units import exact_duration

METRICS: dict[LatencyMetric, str] = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90"}
MINUS = "\N{MINUS SIGN}"


def clean(text: str, limit: int = 400) -> str:
    """Return one printable line of at most ``limit`` characters; names from a YAML file may be anything."""
    line = " ".join(printable(text, len(text)).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def short_label(text: str) -> str:
    """Return a legend entry; leading underscores are removed, since Matplotlib hides such labels."""
    return clean(text, 26).lstrip("_ ") or "?"


def names_of(aggregate: Aggregate, configs: Iterable[str]) -> list[str]:
    """Return the labels of configurations for axes and legends."""
    return [short_label(aggregate.label_of(config)) for config in configs]


def percent(ratio: float) -> str:
    """Format a ratio: ``0.312`` -> ``"+31 %"``; one decimal below 10 %."""
    return signed([ratio], "ratio")[0]


def microseconds(value: float) -> str:
    return signed([value], "us")[0]


def signed(values: Sequence[float], unit: str, *, no_zero: bool = False) -> list[str]:
    """Format numbers with sign and unit, and enough digits to differ.

    Args:
        unit: ``ratio`` or ``us``.
        no_zero: see ``digits_apart``.
    """
    scale, word = (100, "%") if unit == "ratio" else (1, "µs")
    texts = digits_apart([scale * v for v in values], no_zero=no_zero)
    signs = ("" if text == "0" or text[0] == "-" else "+" for text in texts)
    return [f"{sign}{text} {word}".replace("-", MINUS) for sign, text in zip(signs, texts, strict=True)]


def rate(value: float) -> str:
    return f"{value:g} req/s"


def interval_texts(
    value: Interval, unit: str = "ratio", *, no_low: str = "no lower bound", no_high: str = "no upper bound"
) -> tuple[str, str, str]:
    """Format point, lower and upper end with digits to differ from each other and from zero."""
    known = [v for v in (value.point, value.low, value.high) if v is not None]
    texts = iter(signed(known, unit, no_zero=value.excludes_zero))
    point = next(texts)
    low = no_low if value.low is None else next(texts)
    return point, low, no_high if value.high is None else next(texts)


def with_interval(value: Interval, unit: str = "ratio") -> str:
    """Format a number with its interval: ``"+31 % [+27 %, +36 %]"``; an open end in words."""
    point, low, high = interval_texts(value, unit)
    return f"{point} [{low}, {high}]"


def listing(items: Sequence[str], most: int = 3) -> str:
    """List items: ``"a, b, c and 4 more"``."""
    if len(items) > most:
        return ", ".join(items[:most]) + f" and {len(items) - most} more"
    return ", ".join(items[:-1]) + " and " + items[-1] if len(items) > 1 else "".join(items)


WORDS = PROJECT_ROOT / "workflow" / "report"


@cache
def labels() -> dict[str, dict[str, str]]:
    """Return kind -> code -> words."""
    text = (WORDS / "labels.yaml").read_text(encoding="utf-8")
    # libyaml's loader, if PyYAML has it, takes a tenth of the time.
    table: dict[str, dict[str, str]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # nosec B506  # both loaders are safe ones
    return table


def label(kind: str, code: str) -> str:
    """Return the words of a code; an unknown code, as from another version, stands for itself."""
    return labels()[kind].get(code, code.replace("_", " "))


def phase_text(phase: str) -> str:
    """Return a phase in words: ``rates``, ``repeat 2``."""
    return f"{label('phase', 'repeat')} {phase[1:]}" if is_repeat(phase) else label("phase", phase)


def reason_text(reason: str | None, subject: str = "") -> str:
    """Return why a number is missing, in words; the subject comes first."""
    words = labels()["missing"].get(reason or "", reason or "")
    return f"{labels()['subject'].get(subject, subject)}: {words}" if subject else words


def problem_text(problem: Problem | None) -> str:
    """Return a problem in words, with its detail and its cause; empty for None."""
    if problem is None:
        return ""
    facts = defaultdict(lambda: "?")
    for name, value in problem.numbers.items():
        facts[name] = exact_duration(round(value)) if name.endswith("_s") else f"{value:,.10g}"
    facts["subject"] = phase_word(problem.subject) if is_phase(problem.subject) else problem.subject
    facts["names"] = ", ".join(problem.names)
    words = label("problem", problem.code).format_map(facts).strip()
    return printable(": ".join(filter(None, (words, problem.detail, problem_text(problem.because)))))


def launches_text(n_blocks: int) -> str:
    """Return the number of launches in words: ``of one launch``, ``over 4 blocks``."""
    return label("n_blocks", "one" if n_blocks == 1 else "several").format(n=n_blocks)


def why_absent(aggregate: Aggregate, config: str) -> str:
    """Return why a configuration has no number: ``"mooncake_both was skipped: <reason>"``."""
    state = aggregate.configs.get(config)
    words = f"{config} {label('absent', 'not_asked' if state is None else state.status)}"
    why = problem_text(None if state is None else state.reason)
    return f"{words}: {why}" if why else words


def connectors_or_all(configs: Collection[str]) -> list[str]:
    """Return the connectors, or all if there is none; plain with a connector's settings is none."""
    return [c for c in configs if is_connector(c)] or list(configs)


def rated_cells(aggregate: Aggregate, phase: str, config: str) -> list[MeasuredCell]:
    """Return usable cells of one configuration and phase that have a rate, in order of rate."""
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


def blocks_of(tax: TaxRow) -> int | None:
    """Return the number of blocks behind a tax; None for one launch."""
    return None if tax.of_one_launch else tax.n_blocks


def main_taxes(aggregate: Aggregate, *, metric: str, reference: str) -> dict[str, TaxRow]:
    """Return configuration -> its main tax at ``reference``, for those with a number."""
    taxes = {
        tax.config: tax
        for tax in aggregate.main_taxes
        if (tax.metric, tax.reference) == (metric, reference) and tax.known
    }
    return {c: taxes[c] for c in aggregate.config_ids if c in taxes}


def main_tax_for(aggregate: Aggregate, row: TaxRow) -> TaxRow:
    """Return the main tax at one cell's configuration, rate and shape.

    If neither it nor the cell's own tax has a number, return the one whose cell counts.
    """
    chosen = next((tax for tax in aggregate.main_taxes if tax.place == row.place), row)
    main_has_cell = not _has_cell(aggregate, row) and _has_cell(aggregate, chosen)
    return chosen if chosen.known or row.known or main_has_cell else row


def _has_cell(aggregate: Aggregate, tax: TaxRow) -> bool:
    """Return whether the tax's cell counts; a tax over blocks has no single cell."""
    cells = () if tax.phase is None else aggregate.measured(tax.phase, tax.config)
    return tax.phase is None or any(cell.cell_id == tax.cell_id for cell in cells)


def virtual_name(gpu: VirtualGpu | DeviceIdentity) -> str:
    """Name a virtual GPU in printable text: ``NVIDIA H200 (profile h200, 0123456789abcdef)``."""
    name, profile, sha256 = (printable(text or "unknown", 96) for text in (gpu.name, gpu.profile, gpu.sha256))
    return f"{name} (profile {profile}, {sha256})"


def on_embedded_engine(aggregate: Aggregate) -> bool:
    """Return whether the numbers come from a modelled server."""
    return aggregate.provenance.measured_on.kind == "embedded_engine"


def source_note(aggregate: Aggregate) -> str:
    """Return what every picture of this campaign must say about its source; empty for a campaign on a GPU."""
    provenance = aggregate.provenance
    gpu = "" if (clock := provenance.clock) is None else virtual_name(clock)
    return label("note", provenance.measured_on.kind).format(gpu=gpu)
