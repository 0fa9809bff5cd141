"""``history.json``: taxes of many campaigns as series over time, and where their level changed."""

from typing import Annotated, ClassVar, Literal

import msgspec

from connector_tax.base.documents.aggregate.intervals import Kind
from connector_tax.base.documents.aggregate.words import Count, LatencyMetric, Rate, Scalar
from connector_tax.base.documents.rates import Reference

SCHEMA_VERSION: Literal[1] = 1
# Taxes of one launch and taxes over blocks of launches differ in what their intervals hold: each kind is judged by itself.
KindClass = Literal["launch", "blocks"]
Standing = Literal["stands", "taken back"]
Status = Literal["confirmed", "suspected"]
NoiseSource = Literal["noise floor over blocks", "pairs of launches of plain", "spread of the series itself"]
Verdict = Literal["not judged", "no regression", "suspected", "regression"]


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        index: what points name it by.
        when: of its first start, ``YYYY-MM-DDTHH:MM:SSZ`` or the date.
        environment: index of what has to be alike.
        versions: of vLLM and of what else the engine imports.
    """

    index: Count
    path: str
    name: str
    when: str
    environment: Count
    versions: dict[str, Scalar]


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be alike within a series.

    Attributes:
        facts: all of it, in words.
        differs: of them those that are not the same in every environment.
    """

    index: Count
    facts: dict[str, str]
    differs: dict[str, str]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One tax of one campaign.

    Attributes:
        campaign: its index.
        point, low, high: a ratio less one; null where it is unavailable, for ``reason``, or unbounded.
        kind: ``of one launch``, ``over 5 blocks``.
        unlike: it is of another kind than the newest point that has a number, and is not judged with it.
        overloaded: one of the two sides did not keep up, so it holds queueing.
        flags: of the cells behind it.
    """

    campaign: Count
    point: float | None
    low: float | None
    high: float | None
    reason: str | None
    kind: Kind
    unlike: bool
    overloaded: bool
    flags: tuple[str, ...]


class Threshold(msgspec.Struct, frozen=True, kw_only=True):
    """How far plain is from itself, as a ratio of latencies less one: a smaller shift is no alarm.

    Attributes:
        n: differences behind it.
    """

    kind: KindClass
    ratio: Annotated[float, msgspec.Meta(ge=0)]
    source: NoiseSource
    n: Count


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that differs between the campaigns on either side of a change."""

    what: str
    before: str
    after: str


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A change of level.

    Attributes:
        first, last_before: indices of the first campaign behind it and of the one before that.
        kind: of the points that it was found in.
        point, low, high: of the latency over plain's, as a ratio less one, with its interval.
        before, after: mean taxes on either side, up to the change before and to the one behind.
        by_now: how far the level at the end of the series is from ``before``, as a ratio of latencies less one; a suspected last campaign is no
            part of that end, except for its own change.
        status: confirmed by a second campaign; else suspected, and ``to_confirm`` says what would tell.
        standing: whether the level is still that far up, or down, at the end of the series.
        regression: a confirmed rise of a connector's tax that stands, and ``by_now`` is larger than ``fail_above``.
    """

    first: Count
    last_before: Count
    kind: KindClass
    status: Status
    point: float
    low: float
    high: float
    before: float
    after: float
    by_now: float
    standing: Standing
    regression: bool
    to_confirm: str | None
    differences: tuple[Changed, ...]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One tax over time.

    Attributes:
        decides: false for plain with a connector's settings, which is no connector.
        points: in order of time.
    """

    config: str
    label: str
    metric: LatencyMetric
    reference: Reference
    rate_per_s: Rate
    environment: Count
    decides: bool
    points: tuple[Point, ...]
    thresholds: tuple[Threshold, ...]
    changes: tuple[ChangePoint, ...]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign that is in no series, and why."""

    path: str
    reason: str


class History(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        confidence: of a change's interval and of the thresholds.
        fail_above: a confirmed rise by more than this ratio is a regression.
        verdict: ``not judged`` where no series of a connector's tax has the campaigns that it takes.
        exit_code: 1 for a regression, else 0.
        sentence: what is printed last.
    """

    REMEDY: ClassVar[str] = "Make it again with connector-tax track."

    schema_version: Literal[1] = SCHEMA_VERSION
    confidence: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    fail_above: float
    campaigns: tuple[Campaign, ...]
    environments: tuple[Environment, ...]
    series: tuple[Series, ...]
    left_out: tuple[LeftOut, ...]
    verdict: Verdict
    exit_code: Literal[0, 1]
    sentence: str
