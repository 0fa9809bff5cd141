"""What a drill-down says in words and tables of a cell's raw files: hooks by share, requests that failed, how it was launched."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from connector_tax.base.opening import printable
from connector_tax.base.records.request import RequestRecord
from connector_tax.base.redaction import excerpt, redacted
from connector_tax.read.ingest import CellData
from connector_tax.read.ingest.steps import StepTable
from connector_tax.read.ingest.timeline import Moment
from connector_tax.read.report.drill.axes import written
from connector_tax.read.report.drill.panels import Panel

MOST_HOOKS = 8
MOST_ERROR_CHARS = 200
MOST_LAUNCH_CHARS = 600
THINNED = (
    "The campaign was thinned to be published, and this cell's step records were left out: durations of steps and hooks are not shown. "
    "Requests and samples of the host are whole."
)
# Series that a host may not record, and what they are called where it does not.
OPTIONAL = {
    ("queue", "running"): "running and waiting requests",
    ("steal", "stolen"): "stolen CPU time",
    ("work", "work"): "the fixed piece of work",
    ("clocks", "CPU"): "CPU clocks",
    ("clocks", "SM"): "GPU clocks",
    ("heat", "°C"): "GPU temperature",
    ("heat", "W"): "GPU power",
}


@dataclass(frozen=True, slots=True)
class HookRow:
    """What one hook takes of the steps of a cell.

    Attributes:
        bar: its share in percent, for a bar.
    """

    name: str
    share: str
    bar: str
    us: str
    calls: str


@dataclass(frozen=True, slots=True)
class FailureRow:
    status: str
    count: str
    error: str


def hooks_of(steps: StepTable | None, *, left_out: bool = False) -> tuple[tuple[HookRow, ...], str]:
    """The hooks that take most of the window's steps, and what to say below them.

    Args:
        left_out: there were records of its steps, which the published copy has not any more.
    """
    if steps is None and left_out:
        return (), THINNED
    if steps is None:
        return (), "No step records, so hooks are not known."
    if steps.unheard is not None:
        return (), f"Hook times are not known: {printable(steps.unheard, MOST_ERROR_CHARS)}."
    names, us = steps.hooks.names, steps.hooks.us
    heard = ~np.isnan(us).any(axis=1) if names else np.zeros(steps.n, dtype=bool)
    whole = float(steps.step_duration_us[heard].sum())
    if not heard.any() or whole <= 0:
        return (), "No hook was recorded in a step of the window."
    total, calls = us[heard].sum(axis=0), steps.hooks.calls[heard].mean(axis=0)
    order = [int(k) for k in np.argsort(-total, kind="stable") if total[k] > 0]
    rows = tuple(
        HookRow(
            name=printable(names[k], MOST_ERROR_CHARS),
            share=f"{written(100 * total[k] / whole)} %",
            bar=f"{min(100.0, 100 * total[k] / whole):.1f}",
            us=written(total[k] / heard.sum()),
            calls=written(float(calls[k])),
        )
        for k in order[:MOST_HOOKS]
    )
    n = f"Means of {int(heard.sum()):,} steps of the window."
    others = len(order) - len(rows)
    return rows, n if others <= 0 else f"{n} {others} more hooks take less."


def failures_of(requests: Sequence[RequestRecord]) -> tuple[FailureRow, ...]:
    """By status, most frequent first, with the first error that was noted."""
    counts = Counter(r.status for r in requests if r.status != "ok")
    first: dict[str, str] = {}
    for r in requests:
        if r.error:
            first.setdefault(r.status, r.error)
    return tuple(
        FailureRow(
            status.replace("_", " "),
            f"{n:,}",
            printable(excerpt(first.get(status, ""), MOST_ERROR_CHARS), 2 * MOST_ERROR_CHARS),
        )
        for status, n in counts.most_common()
    )


def launch_of(cell: CellData) -> str:
    """The connector's configuration as it was launched; empty for plain."""
    found = cell.document.kv_transfer_config
    return printable(json.dumps(redacted(found), ensure_ascii=False), MOST_LAUNCH_CHARS) if found else ""


def throttled_in(moments: Sequence[Moment]) -> str:
    """What held the GPU's clocks down, in which share of its samples; empty where nothing did or nothing says."""
    told = [
        m.host.gpu.clock_reasons
        for m in moments
        if m.host is not None and m.host.gpu is not None and m.host.gpu.clock_reasons is not None
    ]
    counts = Counter(reason for reasons in told for reason in reasons)
    return ", ".join(
        f"{printable(reason, MOST_ERROR_CHARS)} in {100 * n / len(told):.0f} % of samples"
        for reason, n in counts.most_common()
    )


def not_recorded(found: Sequence[Panel]) -> str:
    """What no sample says."""
    there = {(panel.key, trace.name) for panel in found for trace in panel.traces}
    return ", ".join(words for key, words in OPTIONAL.items() if key not in there)


def unchanged(panel: Panel) -> str:
    """What a panel of samples says in words, where none of its series ever changes: ``GPU power 400 W``; empty otherwise."""
    if any(t.look != "line" or t.values.min() != t.values.max() for t in panel.traces):
        return ""
    said = ", ".join(f"{t.name} {written(float(t.values[0]))}" for t in panel.traces)
    return f"{panel.title}: {said} {panel.unit}".rstrip()
