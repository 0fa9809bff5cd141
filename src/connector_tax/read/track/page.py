"""``index.html``: one self-contained page of a history, pictures inside it; the same history gives the same bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from connector_tax.base.documents.aggregate import Interval
from connector_tax.base.documents.history import ChangePoint, History, Point, Series
from connector_tax.base.opening import printable
from connector_tax.read.figures.words import clean, percent, with_interval
from connector_tax.read.track.history import change_text, name_of
from connector_tax.read.track.picture import picture, title

HERE = Path(__file__).parent
STYLE = HERE.parent / "report" / "report.css"
# Of rows of one kind; the document has all.
MOST_ROWS = 500
VERSIONS = "version of "


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One change as the table has it."""

    series: str
    anchor: str
    when: str
    campaign: str
    text: str
    levels: str
    versions: tuple[str, ...]
    others: tuple[str, ...]
    status: str
    mood: str


@dataclass(frozen=True, slots=True)
class PointRow:
    when: str
    campaign: str
    versions: str
    tax: str
    kind: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeriesView:
    """
    Attributes:
        notes: threshold, what the other series of its kind differ in, and what its points are.
    """

    anchor: str
    title: str
    uri: str
    notes: tuple[str, ...]
    points: tuple[PointRow, ...]


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("track.html.j2")


def render(history: History) -> str:
    """The page's HTML; every value is escaped, since names come from files that people write."""
    rows = [_change_row(history, k, c) for k, s in enumerate(history.series) for c in s.changes]
    return _template().render(
        history=history,
        css=STYLE.read_text(encoding="utf-8"),  # our own file, the only text that is not escaped
        changes=rows[:MOST_ROWS],
        series=[_series_view(history, k) for k in range(len(history.series))],
        environments=_environments(history),
        common=_common(history),
        left_out=[(clean(f.path), printable(f.reason)) for f in history.left_out],
    )


def _anchor(k: int) -> str:
    return f"series-{k}"


def _change_row(history: History, k: int, change: ChangePoint) -> ChangeRow:
    series = history.series[k]
    campaign = history.campaigns[change.first]
    versions = [d for d in change.differences if d.what.startswith(VERSIONS)]
    others = [d for d in change.differences if d not in versions]
    status = {"confirmed": "confirmed", "suspected": "suspected, of one campaign alone"}[change.status]
    rose = change.point > 0
    mood = "open" if change.status == "suspected" else "bad" if rose else "good"
    return ChangeRow(
        series=name_of(series),
        anchor=_anchor(k),
        when=clean(campaign.when),
        campaign=clean(campaign.name),
        text=change_text(change),
        levels=f"{percent(change.before)} before, {percent(change.after)} behind it",
        versions=tuple(f"{d.what.removeprefix(VERSIONS)} {d.before} → {d.after}" for d in versions)
        or (f"the same: vLLM {clean(str(campaign.versions.get('vllm') or 'unknown'))}",),
        others=tuple(f"{d.what}: {d.before} → {d.after}" for d in others),
        status=status
        + (", a regression" if change.regression else "")
        + (", taken back since" if change.standing == "taken back" else "")
        + ("" if series.decides else ", of no connector: decides nothing"),
        mood=mood,
    )


def _series_view(history: History, k: int) -> SeriesView:
    series = history.series[k]
    return SeriesView(
        anchor=_anchor(k),
        title=title(history, series),
        uri=picture(history, series),
        notes=tuple(_notes(history, series)),
        points=tuple(_point_row(history, p) for p in series.points[-MOST_ROWS:]),
    )


def _notes(history: History, series: Series) -> Iterator[str]:
    environment = history.environments[series.environment]
    where = "; ".join(f"{name}: {clean(text)}" for name, text in environment.differs.items())
    yield f"Environment {environment.index}" + (f" ({where})." if where else ".")
    for threshold in series.thresholds:
        kind = "of one launch" if threshold.kind == "launch" else "over blocks"
        yield (
            f"Shifts of taxes {kind} up to {percent(threshold.ratio).lstrip('+')} are no alarm: {threshold.source}, n = {threshold.n}."
        )
    others = [
        s
        for s in history.series
        if s is not series
        and (s.config, s.metric, s.reference) == (series.config, series.metric, series.reference)
    ]
    for other in others:
        yield f"{name_of(other)} in environment {other.environment} is another series: {_unlike(history, series, other)}."
    if any(p.unlike for p in series.points):
        yield "Hollow marks are taxes of another kind than the newest one's; each kind is judged by itself."
    if any(p.point is None for p in series.points):
        yield "Crosses are campaigns without a number; the table says why."


def _unlike(history: History, series: Series, other: Series) -> str:
    """What keeps two series apart."""
    first, second = (history.environments[s.environment].facts for s in (series, other))
    differ = [
        f"{name} is {clean(second.get(name, '-'), 120)} there and {clean(first.get(name, '-'), 120)} here"
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    ]
    if series.rate_per_s != other.rate_per_s:
        differ.append(f"its rate is {other.rate_per_s:g} req/s there and {series.rate_per_s:g} here")
    return "; ".join(differ)


def _point_row(history: History, point: Point) -> PointRow:
    campaign = history.campaigns[point.campaign]
    remarks = [f"flag {clean(flag)}" for flag in point.flags]
    remarks += ["did not keep up, holds queueing"] if point.overloaded else []
    remarks += ["of another kind than the newest"] if point.unlike else []
    return PointRow(
        when=clean(campaign.when),
        campaign=clean(campaign.name),
        versions=", ".join(
            f"{clean(n)} {clean(str(v))}" for n, v in campaign.versions.items() if v is not None
        ),
        tax=f"not available: {clean(point.reason or 'no reason is said')}"
        if point.point is None
        else with_interval(Interval(point.point, point.low, point.high)),
        kind="" if point.point is None else point.kind,
        remarks=tuple(remarks),
    )


def _environments(history: History) -> list[tuple[int, int, list[tuple[str, str]]]]:
    """Number, campaigns, and what differs, of each; none where there is one alone."""
    if len(history.environments) < 2:
        return []
    counts = [sum(c.environment == e.index for c in history.campaigns) for e in history.environments]
    return [
        (e.index, n, [(clean(k), clean(v)) for k, v in e.differs.items()])
        for e, n in zip(history.environments, counts, strict=True)
    ]


def _common(history: History) -> list[tuple[str, str]]:
    """What is the same in all environments."""
    first = history.environments[0]
    return [(clean(k), clean(v)) for k, v in first.facts.items() if k not in first.differs]
