"""What a tax is made of, and which engine settings a connector changes, as tables."""

from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, Decomposition, QuantityOfKind, TwoParts
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.questions import blocks_of, in_order, main_taxes
from connector_tax.read.figures.words import MEASURED, clean, launch_of, with_interval
from connector_tax.read.report.tax_text import own_of_phase, phase_name

METRIC_WORDS = {"ttft_p90": "TTFT p90", "tpot_p90": "TPOT p90", "step_p50_us": "median step"}


@dataclass(frozen=True, slots=True)
class PartText:
    """``range``: the interval, or why there is no number."""

    text: str
    range: str
    n: str = ""


@dataclass(frozen=True, slots=True)
class PartsRow:
    """``kind``: of the tax; empty where it has no number, and where each part says its own."""

    label: str
    metric: str
    kind: str
    parts: list[PartText]


@dataclass(frozen=True, slots=True)
class SettingsRow:
    """``nothing``: what stands there where nothing was changed."""

    config: str
    label: str
    changes: list[str]
    nothing: str


def decomposition_view(aggregate: Aggregate) -> list[PartsRow]:
    """One row per connector and latency, in the campaign's order."""
    return [_decomposed(aggregate, row) for row in in_order(aggregate, aggregate.decomposition)]


def _decomposed(aggregate: Aggregate, row: Decomposition) -> PartsRow:
    kind = row.kind if row.total.known else ""
    own, framework, rest = _launches(aggregate, row.config, row.metric)
    alike = own == framework
    launches = ("", "", "", "") if alike else (own, "", framework, rest)
    parts = (row.total, row.flags, row.framework, row.implementation)
    texts = [_part_of(kind, part, launch) for part, launch in zip(parts, launches, strict=True)]
    if row.implementation.known and (unlike := _over_unlike(aggregate, row.config, row.metric)):
        texts[-1] = _part(row.implementation, beside=f", {unlike}", n=_requests(row.implementation))
    return PartsRow(
        aggregate.label_of(row.config),
        METRIC_WORDS[row.metric],
        f"{kind}{own}" if kind and alike else kind,
        texts,
    )


def _part_of(whole: str, part: QuantityOfKind, launch: str) -> PartText:
    """One of another kind than ``whole``, the tax, says so, and so does one of another launch than Phase A's."""
    other = "" if part.kind is None or (part.kind == whole and not launch) else f", {clean(part.kind)}"
    return _part(part, beside=f"{other}{launch}" if part.known else "", n=_requests(part))


def _requests(part: QuantityOfKind) -> str:
    """Nothing where none were measured."""
    return f"n {part.n:,}" if part.known and part.n else ""


def _part(part: QuantityOfKind, unit: str = "ratio", *, beside: str = "", n: str = "") -> PartText:
    found = part.interval
    if found is None:
        return PartText("not available", part.reason or "", n)
    head, _, rest = with_interval(found, unit).partition(" [")
    return PartText(head, (f"[{rest}" if rest else "") + beside, n)


def two_parts_view(aggregate: Aggregate) -> list[PartsRow]:
    """One row per connector and metric: its tax, the no-op connector's, and the rest."""
    return [_halved(aggregate, row) for row in in_order(aggregate, aggregate.two_parts)]


def _halved(aggregate: Aggregate, row: TwoParts) -> PartsRow:
    parts = zip(
        (row.total, row.framework, row.rest), _launches(aggregate, row.config, row.metric), strict=True
    )
    unlike = _over_unlike(aggregate, row.config, row.metric)
    return PartsRow(
        aggregate.label_of(row.config),
        METRIC_WORDS[row.metric],
        "",
        [
            _part(
                part,
                row.unit,
                n=""
                if part.kind is None
                else f"n {part.n:,}, {unlike if unlike and part is row.rest else f'{part.kind}{launch}'}",
            )
            for part, launch in parts
        ],
    )


def _over_unlike(aggregate: Aggregate, config: str, metric: str) -> str:
    """``over 4 blocks less over 5``, where a tax and the framework's are over unlike numbers of blocks; else nothing."""
    of_metric = main_taxes(aggregate, metric=metric, reference="ref_safe")
    whole, framework = (
        None if (tax := of_metric.get(c)) is None else blocks_of(tax) for c in (config, "noop_connector")
    )
    unlike = whole is not None and framework is not None and whole != framework
    return f"over {whole} blocks less over {framework}" if unlike else ""


def _launches(aggregate: Aggregate, config: str, metric: str) -> tuple[str, str, str]:
    """By which phase's launch a tax, the framework's and what is left between them are, where one of the two is not by Phase A's."""
    of_metric = main_taxes(aggregate, metric=metric, reference="ref_safe")
    taxes = (of_metric.get(config), of_metric.get("noop_connector"))
    phases = [None if tax is None or blocks_of(tax) is not None else tax.phase for tax in taxes]
    if not set(phases) - {"a", None}:
        return "", "", ""
    by, other = ("" if phase is None else f", by {launch_of(phase_name(phase))}" for phase in phases)
    whose = ["" if phase is None else own_of_phase(phase) for phase in phases]
    return by, other, by if by == other else f" each, {whose[0]} less {whose[1]}"


def settings_view(aggregate: Aggregate) -> list[SettingsRow]:
    """One row per configuration: what it changed against plain, that it changed nothing, or that its settings were not seen.

    Nothing where nobody's were.
    """
    seen = aggregate.engine_diff
    if all(changes is None for config, changes in seen.items() if config != "plain"):
        return []
    wanted = [c for c in aggregate.config_ids if is_connector(c) and aggregate.configs[c].status in MEASURED]
    found = []
    for config in dict.fromkeys((*seen, *wanted)):
        changes = seen.get(config)
        words = [
            f"{name.removeprefix('log.')}: {change['plain']} → {change['own']}"
            for name, change in (changes or {}).items()
        ]
        if config != "plain":
            nothing = "not known" if changes is None else "none"
            found.append(SettingsRow(config, aggregate.label_of(config), words, nothing))
    return in_order(aggregate, found)
