"""Questions that figures and report ask of ``aggregate.json``.

The document is taken as it comes: what is absent, null or not finite is None here, so a figure asks
once and leaves out what it is not told. Nothing is computed but look-ups and formatting-free picks.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.documents.aggregate import Interval as Interval
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json
from connector_tax.base.opening import printable
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures import claims, words

Aggregate = Mapping[str, Any]
REFERENCES = ("ref_safe", "ref_load")


@dataclass(frozen=True, slots=True)
class ConfigView:
    id: str
    label: str
    status: str
    reason: str


def mapping(value: Any) -> Mapping[str, Any]:
    """``value`` if it is a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def rows(value: Any) -> list[Mapping[str, Any]]:
    """The JSON objects in ``value`` if it is a list, else none."""
    return [v for v in value if isinstance(v, Mapping)] if isinstance(value, list) else []


def strings(value: Any) -> list[str]:
    """The strings in ``value`` if it is a list, else none."""
    return [v for v in value if isinstance(v, str)] if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A finite number, or None for everything else JSON can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def interval(value: Any) -> Interval | None:
    """``{point, low, high}``, or a bare number without an interval."""
    if isinstance(value, Mapping):
        point = number(value.get("point"))
        return None if point is None else Interval(point, number(value.get("low")), number(value.get("high")))
    point = number(value)
    return None if point is None else Interval(point, None, None)


def configs(aggregate: Aggregate) -> list[ConfigView]:
    """Every configuration of the campaign, ``plain`` first, then as the campaign lists them."""
    found = [
        ConfigView(
            id=config_id,
            label=str(mapping(value).get("label") or config_id),
            status=str(mapping(value).get("status") or "missing"),
            reason=_without_status(value),
        )
        for config_id, value in mapping(aggregate.get("configs")).items()
    ]
    return sorted(found, key=lambda c: c.id != "plain")


def in_order(
    aggregate: Aggregate, found: Iterable[Mapping[str, Any]], *first: str
) -> list[Mapping[str, Any]]:
    """Rows sorted by the keys ``first``, if any, and then as the campaign lists their ``config``; unknown ones come last."""
    place = {c.id: k for k, c in enumerate(configs(aggregate))}
    return sorted(
        found,
        key=lambda row: (*(str(row.get(k)) for k in first), place.get(str(row.get("config")), len(place))),
    )


def _without_status(value: Any) -> str:
    """The reason alone; it may repeat the status in front."""
    reason = str(mapping(value).get("reason") or "")
    return reason.removeprefix(f"{mapping(value).get('status')}: ")


def label_of(aggregate: Aggregate, config_id: str) -> str:
    return next((c.label for c in configs(aggregate) if c.id == config_id), config_id)


def why_absent(aggregate: Aggregate, config_id: str) -> str:
    """``"mooncake_both was skipped: <reason>"``, for a configuration a figure needs and does not have."""
    for config in configs(aggregate):
        if config.id == config_id:
            word = {"measured": "has no usable number here", "partial": "was measured in part only"}.get(
                config.status,
                {"skipped": "was skipped", "failed": "failed"}.get(config.status, f"is {config.status}"),
            )
            return f"{config_id} {word}" + (f": {config.reason}" if config.reason else "")
    return f"{config_id} is not part of this campaign"


def why_no_number(aggregate: Aggregate, config_id: str) -> str:
    """``"it was skipped: <reason>"``: the same behind the configuration's name."""
    config = next((c for c in configs(aggregate) if c.id == config_id), None)
    if config is None:
        return "it is not part of this campaign"
    if config.status == "missing":
        return f"it was {config.reason or 'not measured'}"
    if config.status == "failed" and config.reason.startswith("failed"):
        return f"it {config.reason}"
    words = {
        "measured": "it has no usable number here",
        "partial": "it was measured in part only",
        "skipped": "it was skipped",
        "failed": "it failed",
    }
    word = words.get(config.status, f"it is {config.status}")
    return f"{word}: {config.reason}" if config.reason else word


def all_cells(aggregate: Aggregate, phase: str | None = None) -> list[Mapping[str, Any]]:
    found = rows(aggregate.get("cells"))
    return [c for c in found if phase is None or c.get("phase") == phase]


def usable(cell: Mapping[str, Any]) -> bool:
    """Whether statistics may use the cell: valid, and its files could be read."""
    return cell.get("verdict") == "valid" and cell.get("usable") is not False


def valid_cells(aggregate: Aggregate, phase: str, config_id: str) -> list[Mapping[str, Any]]:
    """Valid cells of one configuration and phase that have a rate, in order of rate."""
    found = [
        c
        for c in all_cells(aggregate, phase)
        if c.get("config") == config_id and usable(c) and (number(c.get("rate_per_s")) or 0) > 0
    ]
    return sorted(found, key=lambda c: float(c["rate_per_s"]))


def percentile(cell: Mapping[str, Any], quantity: str, which: str) -> Interval | None:
    """E.g. ``percentile(cell, "ttft_ms", "p90")``; None where it is not available."""
    return interval(mapping(cell.get(quantity)).get(which))


def reference_rate(aggregate: Aggregate, reference: str) -> float | None:
    return number(mapping(aggregate.get("reference_rates")).get(f"{reference}_per_s"))


def reference_flags(aggregate: Aggregate) -> list[str]:
    flags = mapping(aggregate.get("reference_rates")).get("flags")
    return [str(f) for f in flags] if isinstance(flags, list) else []


def confidence_of(aggregate: Aggregate) -> float:
    """Of every interval of the campaign; aggregates of early versions do not say it, and have the default."""
    return number(mapping(aggregate.get("provenance")).get("confidence")) or 0.95


def confidence_words(aggregate: Aggregate) -> str:
    """``95 %``, as it stands before ``interval``."""
    return f"{confidence_of(aggregate) * 100:g} %"


def random_arrivals(aggregate: Aggregate) -> bool:
    """Whether two of the three criteria of saturation mean something else in this campaign."""
    return mapping(aggregate.get("provenance")).get("arrival") in ("poisson", "gamma")


def saturation_rate(aggregate: Aggregate, config_id: str) -> float | None:
    return number(mapping(mapping(aggregate.get("saturation")).get(config_id)).get("saturation_rate_per_s"))


def as_far_as_measured(aggregate: Aggregate, config_id: str, knee: float) -> str:
    """``, as far as measured`` where it has no usable cell at a lower rate that others have: it may saturate earlier."""

    def rates_of(config: str) -> set[float]:
        return {float(c["rate_per_s"]) for c in valid_cells(aggregate, "a", config)}

    lower = {r for c in configs(aggregate) for r in rates_of(c.id) if r < knee}
    return ", as far as measured" if lower - rates_of(config_id) else ""


def non_monotonic(aggregate: Aggregate, config_id: str) -> list[float]:
    """Rates above its saturation rate at which no criterion fired."""
    found = mapping(mapping(aggregate.get("saturation")).get(config_id)).get("non_monotonic")
    return [r for v in found if (r := number(v)) is not None] if isinstance(found, list) else []


def tax_rows(
    aggregate: Aggregate, *, metric: str, reference: str, phase: str | None = None
) -> list[Mapping[str, Any]]:
    """Rows of ``taxes`` with a usable number, of configurations other than plain."""
    return [
        t
        for t in rows(aggregate.get("taxes"))
        if t.get("metric") == metric
        and t.get("reference") == reference
        and (phase is None or t.get("phase") == phase)
        and t.get("available", True)
        and interval(t) is not None
        and t.get("config") != "plain"
    ]


def is_of_one_launch(kind: object) -> bool:
    """Aggregates of earlier versions do not say it, and have taxes of one launch."""
    return not str(kind).startswith("over")


def standing_tax(aggregate: Aggregate, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tax that stands for the configuration, rate and shape of one cell's: another where the analysis chose another, also one
    that has a reason in place of a number."""
    keys = ("config", "metric", "rate_per_s", "input_tokens", "output_tokens")
    place = [row.get(k) for k in keys]
    found = (t for t in chosen_taxes(aggregate) if [t.get(k) for k in keys] == place)
    chosen = next(found, row)
    return chosen if interval(chosen) is not None or interval(row) is not None else row


def main_taxes(aggregate: Aggregate, *, metric: str, reference: str) -> dict[str, Mapping[str, Any]]:
    """Per configuration, the one tax that stands for ``reference``, as the analysis chose it; those with a number."""
    found = {
        str(row.get("config")): row
        for row in chosen_taxes(aggregate)
        if row.get("metric") == metric and row.get("reference") == reference and interval(row) is not None
    }
    order = [c.id for c in configs(aggregate)]
    place = {k: order.index(k) if k in order else len(order) for k in found}
    return {k: found[k] for k in sorted(found, key=lambda k: (place[k], k))}


def chosen_taxes(aggregate: Aggregate) -> list[Mapping[str, Any]]:
    """``main_taxes``; of an aggregate that was made before there were any, the taxes of Phase A's cells."""
    if "main_taxes" in aggregate:
        return rows(aggregate.get("main_taxes"))
    return [t for t in rows(aggregate.get("taxes")) if t.get("headline")]


def why_not_phase_a(aggregate: Aggregate, tax: Mapping[str, Any]) -> str:
    """Of a tax that another phase's launch gives: why Phase A's cell does not; empty where nothing says it."""
    keys = ("config", "metric", "rate_per_s", "input_tokens", "output_tokens")
    place = [tax.get(k) for k in keys]
    found = (
        t for t in rows(aggregate.get("taxes")) if t.get("phase") == "a" and [t.get(k) for k in keys] == place
    )
    return str(next(found, {}).get("reason") or "")


def phase_a_shape(aggregate: Aggregate) -> tuple[Any, Any] | None:
    for cell in all_cells(aggregate, "a"):
        return cell.get("input_tokens"), cell.get("output_tokens")
    return None


def excluded_cells(aggregate: Aggregate, phase: str) -> list[str]:
    """``"mooncake_both r32_4096x256 (engine died)"`` for each cell that was left out."""
    return [
        f"{c.get('config')} {c.get('cell_id')} ({'; '.join(map(str, c.get('reasons') or [])) or 'files missing or unreadable'})"
        for c in all_cells(aggregate, phase)
        if not usable(c) and is_recorded(c)
    ]


def is_recorded(cell: Mapping[str, Any]) -> bool:
    """Cells without the step recorder stand beside another of the same load, and are in no figure."""
    return not str(cell.get("cell_id")).endswith("_unrecorded")


def verdict_on(aggregate: Aggregate, hypothesis: str, subject: str) -> str:
    """The outcome of one hypothesis about one configuration; empty where it was not judged.

    A title that goes by the point alone would claim more than the interval allows.
    """
    for row in rows(aggregate.get("hypotheses")):
        if row.get("id") == hypothesis and row.get("subject") == subject:
            return str(row.get("outcome") or "")
    return ""


def numbers_of(aggregate: Aggregate, hypothesis: str, subject: str) -> Mapping[str, Any]:
    """What that verdict was taken from; empty where there is none."""
    found = (
        h
        for h in rows(aggregate.get("hypotheses"))
        if (h.get("id"), h.get("subject")) == (hypothesis, subject)
    )
    return mapping(next(found, {}).get("numbers"))


def virtual_gpu(aggregate: Aggregate) -> Mapping[str, Any] | None:
    """What the clock went by, where the device was one; else None."""
    provenance = mapping(aggregate.get("provenance"))
    return mapping(provenance.get("virtual_gpu")) if provenance.get("engine_kind") == "virtual_gpu" else None


def virtual_name(gpu: Mapping[str, Any]) -> str:
    """``NVIDIA H200 (profile h200, 0123456789abcdef)``; names come from files that people write."""
    name, profile, sha256 = (
        printable(str(gpu.get(key) or "unknown"), 96) for key in ("name", "profile", "sha256")
    )
    return f"{name} (profile {profile}, {sha256})"


def source_note(aggregate: Aggregate) -> str:
    """What every picture of this campaign must say about itself; empty for a campaign on a GPU."""
    provenance = mapping(aggregate.get("provenance"))
    versions = mapping(provenance.get("versions"))
    kinds = {
        provenance.get("kind"),
        provenance.get("engine_kind"),
        mapping(provenance.get("engine")).get("kind"),
    }
    if versions.get("emulator") or "emulator" in kinds:
        return "Embedded engine: numbers of a model, they say nothing about real connectors"
    gpu = virtual_gpu(aggregate)
    if gpu is not None:
        return f"Virtual {virtual_name(gpu)}: the device was a clock, without kernels, memory traffic or transfers"
    if not provenance.get("gpu") and (versions or provenance.get("host")):
        cores = number(mapping(provenance.get("host")).get("cores"))
        return f"CPU host{f' with {cores:.0f} cores' if cores else ''}: not the numbers of a GPU"
    return ""


def read_aggregate(folder: CampaignFolder) -> Aggregate:
    """``aggregate.json`` of a campaign.

    Raises:
        ArtifactError: missing, not JSON, or of another schema.
    """
    path = folder.aggregate
    value = read_json(path)
    if not isinstance(value, dict) or value.get("schema_version") != 1:
        found = value.get("schema_version") if isinstance(value, dict) else None
        raise ArtifactError(
            f"{path}: schema {found!r}, this version reads 1. Make it again with connector-tax analyze."
        )
    return value


class _Labels:
    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate

    def label_of(self, config: str) -> str:
        return label_of(self._aggregate, config)


def told_apart(
    aggregate: Aggregate, found: Mapping[str, Interval], *, without: Sequence[str] = (), beside: str = ""
) -> str:
    return claims.told_apart(cast(Any, _Labels(aggregate)), found, without=without, beside=beside)


def without_number(aggregate: Aggregate, *, metric: str, reference: str) -> dict[str, str]:
    """Connectors of the campaign that have no tax there -> why, in the campaign's order."""
    found = {
        str(t.get("config")): t
        for t in chosen_taxes(aggregate)
        if (t.get("metric"), t.get("reference")) == (metric, reference)
    }
    return {
        c.id: str(found.get(c.id, {}).get("reason") or why_no_number(aggregate, c.id))
        for c in configs(aggregate)
        if is_connector(c.id) and interval(found.get(c.id)) is None
    }


def of_reference_rates(aggregate: Aggregate) -> str:
    flags = reference_flags(aggregate)
    return f"Reference rates carry: {', '.join(flags)}." if flags else ""


def launches_behind(chosen: Sequence[Mapping[str, Any]]) -> str:
    """Of main taxes: over how many blocks of launches they are, and whose are of another launch than Phase A's."""
    blocks = sorted({int(n) for row in chosen if (n := number(row.get("blocks"))) is not None})
    over = {row.get("config") for row in chosen if row.get("blocks") is not None}
    # A configuration may have one latency over blocks and the other not, or one reference rate.
    others = sorted({_which(row, row.get("config") in over) for row in chosen if row.get("blocks") is None})
    sentences = []
    if not blocks:
        sentences.append("Of one launch each: what launches differ by is not in the intervals.")
    if blocks:
        most = f" (one launch: {words.listing(others, 9)})" if others else ""
        sentences.append(f"Over {words.listing([*map(str, blocks)], len(blocks))} blocks of launches{most}.")
    stand_ins = {
        str(row.get("config")): str(row.get("phase"))
        for row in chosen
        if row.get("blocks") is None and row.get("phase") not in ("a", None)
    }
    if stand_ins:
        named = [f"{c} (phase {words.PHASES.get(p, p)})" for c, p in sorted(stand_ins.items())]
        sentences.append(
            f"Another launch stands in where Phase A's cell has no number: {words.listing(named, 9)}."
        )
    return " ".join(sentences)


def _which(row: Mapping[str, Any], one_of_several: bool) -> str:
    config = str(row.get("config"))
    if not one_of_several:
        return config
    metric = str(row.get("metric"))
    return f"{words.METRICS.get(metric, metric)} of {config} at {row.get('reference')}"
