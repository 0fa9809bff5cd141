"""Folders of campaigns to one document: series, their changes, a verdict; and the verdict in words."""

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from connector_tax.base.documents.history import ChangePoint, History, LeftOut, Point, Series, Verdict
from connector_tax.base.opening import printable
from connector_tax.base.records.connector import is_connector
from connector_tax.base.statistics.change_points import LEAST_BEFORE
from connector_tax.read.figures.words import METRICS, clean, listing, percent, rate, signed
from connector_tax.read.track.judging import judged
from connector_tax.read.track.series import Key, Many, can_be_judged, many_of, series_of
from connector_tax.read.track.sources import SWEEP, Place, read_campaigns

# Of changes and thresholds; a campaign's own intervals have the confidence that its analysis gave them.
CONFIDENCE = 0.95
MOST_NAMED = 6


def history(
    folders: Sequence[Path],
    fail_above: float = 0.0,
    places: Mapping[Path, Place] | None = None,
    without: Container[Path] = (),
) -> History:
    """
    Args:
        places: of campaigns of a sweep, by their resolved folder.
        without: campaigns that are passed over in those folders; whoever gives them says why.

    Raises:
        ConfigError: no campaign that can be read.
    """
    sides, left_out = read_campaigns(folders, places, without)
    many = many_of(sides, places)
    found, apart = series_of(many)
    left_out += [
        LeftOut(path=c.path, reason="it has no reference rates, and so has no other campaign that is like it")
        for c in apart
    ]
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
    judged_ones = any(s.decides and can_be_judged(s.points, s.thresholds) for s in series)
    verdict: Verdict = (
        "regression"
        if regressions
        else "suspected"
        if suspected
        else "no regression"
        if judged_ones
        else "not judged"
    )
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


def worth_measuring(found: History) -> bool:
    """Whether a suspicion is of the newest campaign of all: after a later one, the next lands in that later one's series."""
    newest = len(found.campaigns) - 1
    return any(c.first == newest for _, c in suspicions(found.series))


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
    own = [s for s in series if s.decides]
    n, judged_ones = len(own), sum(can_be_judged(s.points, s.thresholds) for s in own)
    limit = f" by more than {fail_above * 100:g} %" if fail_above > 0 else ""
    few = f"{LEAST_BEFORE + 1} campaigns with a number of one kind"
    if regressions:
        words = [_told(many, *found, fail_above) for found in regressions]
        said = f"Regression: {len(words)} of {n} series rose{limit}, seen by at least two campaigns each: {listing(words, MOST_NAMED)}."
    elif judged_ones or suspected:
        said = (
            f"No regression: none of {judged_ones} series is known to have risen{limit} and to be up still."
        )
    else:
        said = f"Nothing can be judged yet: of {n} series none has {few}."
    if judged_ones and judged_ones < n:
        said += f" {n - judged_ones} more cannot be judged: fewer than {few}."
    if gone := [name_of(s) for s in own if s.points[-1].point is None]:
        said += f" Without a number in the last campaign: {listing(gone, MOST_NAMED)}."
    if suspected:
        words = [_told(many, *found, fail_above) for found in suspected]
        said += f" Suspected from the last campaign alone: {listing(words, MOST_NAMED)}."
        newest = len(many.campaigns) - 1
        alone = [c for s, c in suspected if SWEEP not in many.environments[s.environment].facts]
        if len(alone) < len(suspected):
            said += " In a sweep another entry would tell, of an axis that it follows, with that campaign once more."
        if any(c.first == newest for c in alone):
            said += f" Measuring {clean(many.campaigns[newest].name)} once more would tell: --confirm CONFIGFILE does."
        elif alone:
            said += " Later campaigns are of other series, so another one would tell nothing of that."
    return printable(said, 20_000)


def _told(many: Many, series: Series, change: ChangePoint, fail_above: float) -> str:
    campaign = many.campaigns[change.first]
    device = clean(many.environments[series.environment].facts["device"], 96)
    by_now = f", {percent(change.by_now)} by now," if change.point <= fail_above else ""
    return f"{name_of(series)} by {change_text(change)}{by_now} with {clean(campaign.name)} of {clean(campaign.when)} on {device}"
