"""Compares many campaigns in order of time, each with the one before, as one page and one JSON document.

``compare`` decides. Campaigns that differ in other conditions of taxes than connectors and versions belong to
different series and are never compared.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import msgspec

from connector_tax.base.documents.aggregate import LatencyMetric
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import printable, write_json, write_text
from connector_tax.base.plan.named import is_campaign
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.templates import template
from connector_tax.read.compare.comparison import LATENCIES, Comparison, Side, compare, number_of, read_side
from connector_tax.read.compare.text import (
    METRIC_WORDS,
    VERDICTS,
    change_text,
    comparison_document,
    comparison_text,
    has_to_be_alike,
    identity,
    number_text,
    side_document,
)
from connector_tax.read.figures.words import clean, listing, reference_rate

HERE = Path(__file__).parent
STYLE = HERE / "report" / "report.css"
MOST_NAMED = 9
_UTC = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


class LeftOut(msgspec.Struct, frozen=True):
    """A campaign that is not on the page, with the reason."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Series:
    """Campaigns that agree in the conditions of taxes, in order of time.

    Attributes:
        alike: the shared conditions, in words.
        steps: each campaign against the one before it.
        whole: the newest against the first; None if that is a step, or there is one campaign.
    """

    alike: Mapping[str, str]
    sides: tuple[Side, ...]
    steps: tuple[Comparison, ...]
    whole: Comparison | None

    @property
    def comparisons(self) -> list[Comparison]:
        return [*self.steps, *([self.whole] if self.whole is not None else [])]


@dataclass(frozen=True, slots=True)
class History:
    fail_above: float
    series: tuple[Series, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def newest(self) -> list[Comparison]:
        """Return comparisons of each series' newest campaign; earlier rises may be reverted."""
        return [
            comparison for s in self.series for comparison in [*s.steps[-1:], *s.comparisons[len(s.steps) :]]
        ]

    @property
    def exit_code(self) -> int:
        """Return 1 if a tax of a series' newest campaign rose since the one before or the first."""
        return int(any(c.regressions for c in self.newest))

    @property
    def verdict(self) -> str:
        """Return the last line that is printed."""
        limit = f"{self.fail_above * 100:g} pp"
        if self.exit_code:
            risen = [
                f"{METRIC_WORDS[c.metric]} of {clean(c.config)} by {change_text(c)} since"
                f" {clean(comparison.a.aggregate.campaign)}"
                for comparison in self.newest
                for c in comparison.regressions
            ]
            return printable(f"Regression: risen by more than {limit}: {listing(risen, MOST_NAMED)}.", 20_000)
        if not any(c.decisive for c in self.newest):
            return (
                "Nothing to judge: no newest campaign has a tax that can be compared with that of an earlier"
                " one."
            )
        sentence = (
            f"No regression: no tax of a newest campaign is known to have risen by more than {limit}, since"
            " the campaign before it or since the first."
        )
        unknown = [heading(c) for c in self.newest if replace(c, allow_missing=False).exit_code == 2]
        return sentence + f" Not every tax could be compared: {listing(unknown, MOST_NAMED)}." * bool(unknown)


def track(paths: Sequence[Path], fail_above: float) -> History:
    """Read campaigns and compare them within their series.

    Args:
        paths: each a campaign's folder, its ``aggregate.json``, or a folder with campaigns' folders in it.
        fail_above: as ``compare`` takes it.

    Raises:
        ConfigError: there is no such folder, or no campaign that can be read.
    """
    sides, left_out = _read(paths)
    groups: dict[tuple[tuple[str, str], ...], list[Side]] = {}
    for side in sides:
        groups.setdefault(tuple(sorted(has_to_be_alike(side).items())), []).append(side)

    def compared(a: Side, b: Side) -> Comparison:
        return compare(
            replace(a, name="A"),
            replace(b, name="B"),
            fail_above=fail_above,
            deciding=LATENCIES,
            allow_missing=True,
        )

    series = tuple(
        Series(
            dict(alike),
            tuple(sides_of_series),
            tuple(compared(a, b) for a, b in pairwise(sides_of_series)),
            compared(sides_of_series[0], sides_of_series[-1]) if len(sides_of_series) > 2 else None,
        )
        for alike, sides_of_series in groups.items()
    )
    return History(fail_above, series, tuple(left_out))


def _read(paths: Sequence[Path]) -> tuple[list[Side], list[LeftOut]]:
    """Return campaigns in order of time, and those that are unreadable or copies of others."""
    sides: list[Side] = []
    left_out: list[LeftOut] = []
    for path in dict.fromkeys(campaign for given_path in paths for campaign in _campaigns_in(given_path)):
        try:
            sides.append(read_side("A", path))
        except ArtifactError as error:
            left_out.append(LeftOut(printable(str(path)), printable(str(error))))
    first_by_identity: dict[tuple[object, ...], Side] = {}
    for side in sorted(sides, key=lambda side: (_when(side), str(side.path))):
        earlier = first_by_identity.setdefault(identity(side), side)
        if earlier is not side:
            reason = printable(f"it is the campaign of {earlier.path} once more")
            left_out.append(LeftOut(printable(str(side.path)), reason))
    if not first_by_identity:
        reasons = "".join(f" {campaign.path}: {campaign.reason}." for campaign in left_out[:3])
        names = printable(", ".join(map(str, paths)), 300)
        raise ConfigError(
            f"{names}: no campaign that can be read.{reasons} Give folders with an aggregate.json, or folders"
            " of such folders."
        )
    return list(first_by_identity.values()), left_out


def _campaigns_in(path: Path) -> list[Path]:
    """Return the campaigns at ``path``; includes links inside a folder, and follows a link given itself."""
    try:
        folder = path.resolve()
        if is_campaign(folder) or (folder.suffix == ".json" and folder.is_file()):
            return [folder]
        return [p for p in sorted(folder.iterdir()) if p.is_dir() and is_campaign(p)]
    except OSError as error:
        name = printable(str(error.filename or path), 300)
        raise ConfigError(
            f"{name}: {error.strerror}. Give a campaign's folder, or one with folders of campaigns in it."
        ) from error


def _when(side: Side) -> str:
    """Return the first start, to the second; the date if the campaign does not say."""
    created = side.aggregate.provenance.created_utc
    return created if created is not None and _UTC.fullmatch(created) else side.aggregate.date


def write_history(history: History, folder: Path) -> list[Path]:
    """Write ``index.html`` and ``history.json``; the same campaigns give the same bytes.

    Raises:
        ArtifactError: the folder cannot be written.
    """
    document = {
        "schema_version": 2,
        "fail_above": history.fail_above,
        "series": [
            {
                "alike": series.alike,
                "campaigns": [*map(side_document, series.sides)],
                "steps": [*map(comparison_document, series.steps)],
                "whole": None if series.whole is None else comparison_document(series.whole),
            }
            for series in history.series
        ],
        "left_out": history.left_out,
        "exit_code": history.exit_code,
        "verdict": history.verdict,
    }
    page, data = folder / "index.html", folder / "history.json"
    write_json(data, msgspec.to_builtins(document))
    write_text(page, render(history))
    return [page, data]


def heading(comparison: Comparison) -> str:
    """Format ``night-02 against night-01``."""
    return f"{clean(comparison.b.aggregate.campaign)} against {clean(comparison.a.aggregate.campaign)}"


def render(history: History) -> str:
    """Return the page's HTML; every value is escaped, since names come from files that people write."""
    names = dict.fromkeys(name for series in history.series for name in series.alike)
    differ = [name for name in names if len({series.alike.get(name) for series in history.series}) > 1]
    return template(HERE / "track.html.j2").render(
        history=history,
        css=STYLE.read_text(encoding="utf-8"),  # our own file, the only text that is not escaped
        differ=list(dict.fromkeys(["device", *differ])),
        metrics=LATENCIES,
        words=METRIC_WORDS,
        labels=_labels,
        entry=_entry,
        when=_when,
        ref_safe=lambda side: reference_rate(side.aggregate, "ref_safe"),
        heading=heading,
        verdicts=VERDICTS,
        comparison_text=comparison_text,
    )


def _labels(series: Series, metric: LatencyMetric) -> dict[str, str]:
    return {
        config: state.label
        for side in series.sides
        for config, state in side.aggregate.configs.items()
        if config not in ("plain", PLAIN_AGAIN) and not (metric == "ttft_p90" and state.ttft_is_no_tax)
    }


def _entry(
    side: Side, comparison: Comparison | None, config: str, metric: LatencyMetric
) -> dict[str, object]:
    """Return one tax of one campaign.

    It has the change since the campaign before, and its class on the page if the change is significant.
    """
    rate_per_s = reference_rate(side.aggregate, "ref_safe")
    if config not in side.aggregate.configs or rate_per_s is None:
        return {"tax": "no ref_safe" if rate_per_s is None else "-", "known": False, "change": ""}
    tax = number_of(side, config, metric, "ref_safe", rate_per_s)
    entry: dict[str, object] = {"tax": number_text(tax, "ratio"), "known": tax.known, "change": ""}
    for change in comparison.changes if comparison is not None else ():
        if (change.config, change.metric) == (config, metric) and change.word in ("worse", "better"):
            css_class = "bad" if change.regression else "open" if change.word == "worse" else "good"
            word_and_change = f"{change.word}, {change_text(change)}"
            if (
                comparison is not None
                and comparison.rate.a_ref_safe_per_s != comparison.rate.b_ref_safe_per_s
            ):
                # The change is at another rate than the taxes shown here.
                word_and_change += f" at {comparison.rate.per_s:g} req/s"
            return entry | {"change": word_and_change, "mood": css_class}
    return entry
