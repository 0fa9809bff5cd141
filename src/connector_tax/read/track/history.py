"""Folders of campaigns to one document: series, their changes, a verdict; and the verdict in words."""

from collections.abc import Sequence
from pathlib import Path

from connector_tax.base.documents.history import ChangePoint, History, Point, Series, Verdict
from connector_tax.base.opening import printable
from connector_tax.base.records.connector import is_connector
from connector_tax.read.figures.words import METRICS, clean, listing, percent, rate, signed
from connector_tax.read.track.judging import judged
from connector_tax.read.track.series import Key, Many, many_of, series_of
from connector_tax.read.track.sources import read_campaigns

# Of changes and thresholds; a campaign's own intervals have the confidence that its analysis gave them.
CONFIDENCE = 0.95
MOST_NAMED = 6


def history(folders: Sequence[Path], fail_above: float = 0.0) -> History:
    """
    Raises:
        ConfigError: no campaign that can be read.
    """
    sides, left_out = read_campaigns(folders)
    many = many_of(sides)
    found = series_of(many)
    order = sorted(
        found,
        key=lambda key: (
            key.config,
            key.reference != "ref_safe",
            key.metric,
            key.environment,
            key.rate_per_s,
        ),
    )
    series = []
    for key in order:
        points = tuple(found[key])
        thresholds, changes = judged(many, key, points, CONFIDENCE, fail_above)
        series.append(
            Series(
                config=key.config,
                label=_label(many, key, points),
                metric=key.metric,
                reference=key.reference,
                rate_per_s=key.rate_per_s,
                environment=key.environment,
                decides=is_connector(key.config),
                points=points,
                thresholds=thresholds,
                changes=changes,
            )
        )
    regressions = [(s, c) for s in series for c in s.changes if c.regression]
    suspected = suspicions(series)
    verdict: Verdict = "regression" if regressions else "suspected" if suspected else "no regression"
    return History(
        confidence=CONFIDENCE,
        fail_above=fail_above,
        campaigns=many.campaigns,
        environments=many.environments,
        series=tuple(series),
        left_out=tuple(left_out),
        verdict=verdict,
        exit_code=1 if regressions else 0,
        sentence=_sentence(many, series, regressions, suspected, fail_above),
    )


def suspicions(series: Sequence[Series]) -> list[tuple[Series, ChangePoint]]:
    """Rises of which a second measurement may make a regression."""
    return [
        (s, c) for s in series for c in s.changes if s.decides and c.status == "suspected" and c.point > 0
    ]


def change_text(change: ChangePoint) -> str:
    """``+2 % [+1.8 %, +2.2 %]``."""
    point, low, high = signed([change.point, change.low, change.high], "ratio", no_zero=True)
    return f"{point} [{low}, {high}]"


def name_of(series: Series) -> str:
    return f"{METRICS[series.metric]} of {clean(series.config)} at {series.reference} ({rate(series.rate_per_s)})"


def _label(many: Many, key: Key, points: Sequence[Point]) -> str:
    return clean(many.sides[points[-1].campaign].aggregate.label_of(key.config))


def _sentence(
    many: Many,
    series: Sequence[Series],
    regressions: Sequence[tuple[Series, ChangePoint]],
    suspected: Sequence[tuple[Series, ChangePoint]],
    fail_above: float,
) -> str:
    """The verdict on one line, with what it is of."""
    n = sum(s.decides for s in series)
    limit = f" by more than {percent(fail_above).lstrip('+')}" if fail_above > 0 else ""
    if regressions:
        words = [_told(many, *found) for found in regressions]
        said = f"Regression: {len(words)} of {n} series rose{limit}, seen by at least two campaigns each: {listing(words, MOST_NAMED)}."
    else:
        said = f"No regression: none of {n} series is known to have risen{limit} and to be up still."
    if suspected:
        words = [_told(many, *found) for found in suspected]
        names = list(dict.fromkeys(clean(many.campaigns[c.first].name) for _, c in suspected))
        said += (
            f" Suspected from the last campaign alone: {listing(words, MOST_NAMED)}. Measuring {listing(names, MOST_NAMED)} once more "
            "would tell: --confirm CONFIGFILE does."
        )
    return printable(said, 20_000)


def _told(many: Many, series: Series, change: ChangePoint) -> str:
    campaign = many.campaigns[change.first]
    device = clean(many.environments[series.environment].facts["device"], 96)
    return f"{name_of(series)} by {change_text(change)} with {clean(campaign.name)} of {clean(campaign.when)} on {device}"
