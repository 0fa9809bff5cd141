"""One line of verdict and an exit code; no more than the intervals hold.

What decides over one launch is the tax over the loads together: the geometric mean of what the connector's latency is of plain's at each of them. Of
three loads that are known alike it is known better than at any one, and there is one look for each latency and way of scheduling. A tax at one load alone
is a third as large in it; the table of taxes has that.

A check makes one launch of the connector between two of plain, so the interval of a tax holds what its requests leave open and not what
launches differ by. What plain differs from itself in the same check is the only word there is on that. So each interval is widened by
that difference of that latency, in either direction, before anything is told apart. Cores of one host also differ in speed from one
moment to the next. Where a fixed piece of work took longer beside the connector than beside plain, or shorter, the interval also holds what would
be left of the tax at plain's speed, and likewise where the virtual GPU's clock ran later beside one of them. The taxes of
four latencies in two ways of scheduling are looked at and one is enough for a verdict, so all of them together are wrong no more often
than one interval may be (Bonferroni), as far as what requests leave open goes. Over three blocks of launches or more the intervals hold what launches differ by, and are made wider for the number of looks alone.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from connector_tax.base.documents.check import BlockTax, Died, Judged
from connector_tax.base.statistics.bootstrap import combine
from connector_tax.base.statistics.laws import student_quantile
from connector_tax.check.campaigns import Campaigns, mode_words
from connector_tax.check.findings import CONFIDENCE, Findings, ModeFindings
from connector_tax.check.load_tax import LoadTax
from connector_tax.check.ratio_text import percents
from connector_tax.read.figures.labels import reason_text
from connector_tax.read.stats.launches import MIN_BLOCKS
from connector_tax.read.stats.taxes import LATENCIES

FINE, ABOVE, NOT_JUDGED = 0, 1, 2
NAMES = {"ttft_p50": "TTFT p50", "ttft_p90": "TTFT p90", "tpot_p50": "TPOT p50", "tpot_p90": "TPOT p90"}


@dataclass(frozen=True, slots=True)
class Verdict:
    exit_code: int
    line: str


def verdict(
    findings: Findings, fail_above: float | None, deciding: tuple[str, ...] = tuple(LATENCIES)
) -> Verdict:
    """
    Args:
        fail_above: as a ratio; None: no tax is too large.
        deciding: of ``LATENCIES``; the others are printed and decide nothing.
    """
    label = findings.campaigns.request.label
    for mode in findings.modes:
        if mode.failure is not None:
            return Verdict(
                NOT_JUDGED, f"{label} does not serve with {mode_words(mode.mode)} scheduling: {mode.failure}"
            )
    died = _died(findings, label)
    if died is not None:
        return Verdict(NOT_JUDGED, died)
    looks = looked_at(findings, deciding)
    judged = [j for mode in findings.modes for j in judge(mode, looks) if j.metric in deciding]
    missing = [why for mode in findings.modes for why in _missing(mode, findings.campaigns, deciding)]
    if missing or not judged:
        many = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        return Verdict(
            NOT_JUDGED, f"{label}: not judged: {missing[0] if missing else 'nothing was measured'}{many}"
        )
    kind = judged[0].kind
    if fail_above is not None:
        above = [j for j in judged if j.told_apart and j.point > fail_above]
        if above:
            worst = max(above, key=lambda j: j.point)
            return Verdict(ABOVE, f"{label}: above {_limit(fail_above)}, {kind}: {judged_words(worst)}")
        blind = _blind(judged, fail_above)
        if blind is not None:
            words = f"{label}: not judged: a tax of {_limit(fail_above)} is not told from none; the best known: {judged_words(blind)}"
            return Verdict(NOT_JUDGED, words)
    # A line that says "no tax" must not be read as one on a latency that was not asked for.
    which = "" if set(deciding) == set(LATENCIES) else f" of {_named(deciding)}"
    limit = "" if fail_above is None else f", none shown to be above {_limit(fail_above)}"
    taxes = [j for j in judged if j.told_apart]
    if taxes:
        worst = max(taxes, key=lambda j: j.point)
        return Verdict(FINE, f"{label}: a tax{which}, {kind}{limit}; the largest: {judged_words(worst)}")
    widest = max(judged, key=lambda j: j.high if j.high is not None else float("inf"))
    return Verdict(
        FINE,
        f"{label}: no tax{which} found, {kind}{limit}; the intervals leave room up to {judged_words(widest)}",
    )


def judged_words(judged: Judged) -> str:
    """``TPOT p90 +0.5 % [+0.1 %, +0.9 %] (synchronous, 2, 4, 8 req/s together)``"""
    point, *ends = (text.replace("%", " %") for text in percents((judged.point, judged.low, judged.high)))
    rates = f"{', '.join(f'{r:g}' for r in judged.rates_per_s)} req/s"
    together = " together" if len(judged.rates_per_s) > 1 else ""
    where = f"{mode_words(judged.mode)}, {rates}{together}"
    return f"{NAMES[judged.metric]} {point} [{ends[0]}, {ends[1]}] ({where})"


def _died(findings: Findings, label: str) -> str | None:
    """Of an engine that died while it served, the connector's first; None where none did."""
    own_id = findings.campaigns.request.connector_id
    for own, who in ((True, label), (False, f"{label}: not judged: plain vLLM")):
        for mode in findings.modes:
            if deaths := mode.deaths_of(own_id, own=own):
                return f"{who} {died_words(deaths)} ({mode_words(mode.mode)} scheduling)"
    return None


def died_words(deaths: Sequence[Died]) -> str:
    times = "" if len(deaths) == 1 else f" {len(deaths)} times, the first time"
    return f"died while it served{times}: {deaths[0].cause}"


def looked_at(findings: Findings, deciding: tuple[str, ...] = tuple(LATENCIES)) -> int:
    """How many taxes decide together."""
    return sum(j.metric in deciding for mode in findings.modes for j in judge(mode))


def judge(mode: ModeFindings, looks: int = 1) -> list[Judged]:
    """The taxes that decide: over blocks where there are any, else those of the one launch over its loads, widened.

    Args:
        looks: how many are looked at together, see ``looked_at``.
    """
    if mode.over_blocks:
        return [
            Judged(
                mode.mode, (t.rate_per_s,), t.metric, t.point, *_among(t, looks), f"over {t.blocks} blocks"
            )
            for t in mode.over_blocks
        ]
    by_metric = ((m, [t for t in mode.taxes if t.metric == m]) for m in LATENCIES)
    return [
        _over_loads(mode.mode, metric, taxes, looks)
        for metric, taxes in by_metric
        if taxes and all(t.own.point is not None for t in taxes)
    ]


def _over_loads(mode: str, metric: str, taxes: Sequence[LoadTax], looks: int) -> Judged:
    """In logarithms, so that no end lies below -100 %."""
    together = combine(*(t.own for t in taxes))
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.mean([np.log1p(np.maximum(r, -1.0)) for r in together.replicates], axis=0)
    point = float(np.mean([math.log1p(t.own.point) for t in taxes if t.own.point is not None]))
    low, high = together.estimate(point, logs).interval(1 - (1 - CONFIDENCE) / looks)
    floor = floor_over_loads(taxes, metric)
    beside = math.inf if floor is None else math.log1p(floor)
    down, up = (float(np.mean([pick(_left(t)) for t in taxes])) for pick in (min, max))
    rates = tuple(t.rate_per_s for t in taxes)
    ends = (_end(low, down - beside), _end(high, up + beside))
    return Judged(mode, rates, metric, math.expm1(point), *ends, "of one launch")


def _left(tax: LoadTax) -> tuple[float, float, float]:
    """By how much the logarithm of a tax at this load may change: not at all, at plain's speed of the host, at plain's lateness of the clock."""
    return 0.0, math.log1p(tax.at_equal_speed(0.0)), math.log1p(tax.at_equal_lateness(0.0))


def _end(log_ratio: float | None, change: float) -> float | None:
    """An end that is not known stays so; the other one stands."""
    return None if log_ratio is None or math.isinf(change) else math.expm1(log_ratio + change)


def floor_over_loads(taxes: Iterable[LoadTax], metric: str) -> float | None:
    """What plain differs from itself by over the loads together; None where that is not known at one of them.

    Three differences may cancel by chance. So it is at least the largest at one load over the square root of their number: what is left of
    such differences in the mean of independent ones.
    """
    points = [t.floor.point for t in taxes if t.metric == metric]
    known = [p for p in points if p is not None]
    if not known or len(known) < len(points):
        return None
    return max(abs(_mean(known)), max(map(abs, known)) / math.sqrt(len(known)))


def _mean(ratios: Iterable[float]) -> float:
    """Geometric, of ratios less one."""
    logs = [math.log1p(r) for r in ratios]
    return math.expm1(sum(logs) / len(logs))


def _among(tax: BlockTax, looks: int) -> tuple[float, float]:
    """The interval of 95 % as one of ``looks`` that err together as rarely: Student's t on the log scale, wider by the ratio of its quantiles."""
    df = tax.blocks - 1
    wider = student_quantile(1 - (1 - CONFIDENCE) / (2 * looks), df) / student_quantile(
        (1 + CONFIDENCE) / 2, df
    )
    point, low, high = (math.log1p(v) for v in (tax.point, tax.low, tax.high))
    return math.expm1(point - wider * (point - low)), math.expm1(point + wider * (high - point))


def noise_floor(taxes: Iterable[LoadTax], metric: str) -> float | None:
    """The largest difference of plain from itself over the loads; None where that is not known at one of them."""
    points = [t.floor.point for t in taxes if t.metric == metric]
    known = [abs(p) for p in points if p is not None]
    return max(known) if known and len(known) == len(points) else None


def _missing(mode: ModeFindings, campaigns: Campaigns, deciding: tuple[str, ...]) -> list[str]:
    """Why a tax that decides is not known: over blocks those at the middle and the highest load, else those at every load."""
    if campaigns.request.blocks >= MIN_BLOCKS:
        return _missing_over_blocks(mode, campaigns.deciding_over_blocks, deciding)
    found = list(mode.lost)
    for tax in mode.taxes:
        if tax.metric in deciding:
            found += [reason_text(e.reason) for e in (tax.own, tax.floor) if e.point is None and e.reason]
    return list(dict.fromkeys(found))


def _missing_over_blocks(
    mode: ModeFindings, rates_per_s: tuple[float, ...], deciding: tuple[str, ...]
) -> list[str]:
    known = {(t.rate_per_s, t.metric) for t in mode.over_blocks if t.blocks >= MIN_BLOCKS}
    found = []
    for rate in rates_per_s:
        unknown = [metric for metric in deciding if (rate, metric) not in known]
        if unknown:
            lost = [why for why in mode.lost if f", {rate:g} req/s: " in why]
            found.append(
                f"{_named(unknown)} at {rate:g} req/s with {mode_words(mode.mode)} scheduling: known over fewer than "
                f"{MIN_BLOCKS} blocks; {lost[0] if lost else 'no cell that counts has it in each'}"
            )
    return found


def _blind(judged: list[Judged], fail_above: float) -> Judged | None:
    """The best known tax of a latency and mode in which no load is known to within ``fail_above``; None where all have one."""
    groups: dict[tuple[str, str], list[Judged]] = {}
    for j in judged:
        groups.setdefault((j.mode, j.metric), []).append(j)
    for group in groups.values():
        if all(_half_width(j) > fail_above for j in group):
            return min(group, key=_half_width)
    return None


def _limit(ratio: float) -> str:
    return f"{100 * ratio:g} %"


def _half_width(j: Judged) -> float:
    return float("inf") if j.low is None or j.high is None else (j.high - j.low) / 2


def _named(metrics: Sequence[str]) -> str:
    *most, last = (NAMES[metric] for metric in metrics)
    return f"{', '.join(most)} and {last}" if most else last
