"""Where the microseconds go, as tables: one per configuration."""

from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate, Attribution, Hook, QuantityOfKind
from connector_tax.read.figures.claims import not_among
from connector_tax.read.figures.questions import in_order, reference_rate, why_no_number
from connector_tax.read.figures.words import clean, hooks_words, interval_texts
from connector_tax.read.report.hooks import ALL_OF_IT, cpu_us, is_all
from connector_tax.read.report.mechanism import mechanism
from connector_tax.read.report.tax_text import OF_ONE_LAUNCH

MAX_HOOKS = 12


@dataclass(frozen=True, slots=True)
class PartRow:
    label: str
    us: str
    n: str


@dataclass(frozen=True, slots=True)
class HookRow:
    hook: str
    calls: str
    us: str
    call: str
    token: str
    cpu: str
    cpu_n: str


@dataclass(frozen=True, slots=True)
class AttributionTables:
    """
    Attributes:
        others: hooks that take less and have no row.
    """

    label: str
    id: str
    step: str
    plain_step: str
    n: str
    difference: str
    why: list[str]
    share: str
    parts: list[PartRow]
    hooks: list[HookRow]
    others: int
    kind: str = OF_ONE_LAUNCH


def attribution_view(aggregate: Aggregate) -> list[AttributionTables]:
    """One entry per configuration, in the campaign's order."""
    return [_one(aggregate, entry) for entry in in_order(aggregate, aggregate.attribution)]


def without_attribution(aggregate: Aggregate) -> list[str]:
    """``"NIXL (both): its hook times are not known"``, of each connector that has no entry where others have one."""
    if not aggregate.attribution:
        return []
    at, there = reference_rate(aggregate, "ref_safe"), {entry.config for entry in aggregate.attribution}
    reasons = {
        tax.config: tax.reason
        for tax in aggregate.taxes
        if (tax.phase, tax.rate_per_s, tax.metric) == ("a", at, "callback_p50_us")
    }
    return [
        f"{aggregate.label_of(config)}: {clean(reasons.get(config) or why_no_number(aggregate, config))}"
        for config in not_among(aggregate, there)
    ]


def _one(aggregate: Aggregate, entry: Attribution) -> AttributionTables:
    share = None if entry.in_hooks_share is None else entry.in_hooks_share.interval
    return AttributionTables(
        label=aggregate.label_of(entry.config),
        id=entry.config,
        step=_us(entry.step_us),
        plain_step=_us(entry.plain_step_us),
        n=f"{entry.n_steps:,} and {entry.n_plain_steps:,}",
        difference=_with_range(entry.difference_us),
        why=[clean(sentence) for sentence in mechanism(aggregate, entry)],
        share="" if share is None or not share.excludes_zero else hooks_words(share, "the difference"),
        parts=[PartRow(p.label, _with_range(p), f"n {p.n:,}, {OF_ONE_LAUNCH}") for p in entry.parts],
        hooks=[_hook(h) for h in entry.hooks[:MAX_HOOKS]],
        others=max(0, len(entry.hooks) - MAX_HOOKS),
    )


def _hook(hook: Hook) -> HookRow:
    cpu = cpu_us(hook)
    return HookRow(
        hook=hook.hook,
        calls=f"{hook.calls_per_step:.2f}",
        us=_us(hook.us_per_step),
        call=_us(hook.us_per_call),
        token=_us(hook.us_per_token),
        cpu="–" if cpu is None else ALL_OF_IT if is_all(hook.us_per_step, cpu) else _us(cpu),
        cpu_n="" if cpu is None else f"n {hook.n_cpu_steps:,}",
    )


def _us(value: float) -> str:
    return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _with_range(value: QuantityOfKind) -> str:
    found = value.interval
    if found is None:
        return "not available"
    # Each to the same decimal, since they add up.
    point, *ends = (text.removesuffix(" µs") for text in interval_texts(found, "us", lambda _: 1))
    return f"{point} [{ends[0]}, {ends[1]}]"
