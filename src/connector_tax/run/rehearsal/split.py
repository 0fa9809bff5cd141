"""How many blocks of launches, and how many requests in each: what a number of hours buys the headline.

Two levels of chance: what launches differ by, and what requests of one launch leave open. A block is a launch of every
configuration and two of plain; the variance of a block's log ratio is one and a half times that of a launch. Source: Kalibera & Jones
2013, "Rigorous benchmarking in reasonable time", section 4 (repetition counts by level from variances and costs).
"""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from connector_tax.base.documents.aggregate import Aggregate
from connector_tax.base.statistics.laws import student_quantile
from connector_tax.base.templates import columns

# A block's own launch, and the mean of plain's two.
LAUNCHES_IN_A_RATIO = 1.5
REQUESTS = (20, 30, 50, 75, 100, 150, 200, 300, 400)
FEWEST_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one metric; standard deviations of a log percentile.

    Attributes:
        between: of launches.
        within: of one launch's cell of ``requests`` requests.
    """

    metric: str
    between: float
    within: float
    requests: float

    def variance(self, requests: float) -> float:
        """Of one launch's log percentile over so many requests."""
        return self.between**2 + self.within**2 * self.requests / requests


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds.

    Attributes:
        wall_s: of the whole plan with so many blocks of repeats whose launches take so long each, on all cards that it has.
        launch_s: of a launch and its release, and of a cell's warm-up and drain.
        request_s: per request of a block's cells, at all reference rates together.
        blocks_beside: blocks that the other phases are.
        requests_beside: in each of those.
    """

    wall_s: Callable[[int, float], float]
    launch_s: float
    request_s: float
    blocks_beside: int
    requests_beside: float


@dataclass(frozen=True, slots=True)
class Split:
    """One way to spend the hours.

    Attributes:
        half_widths: metric -> expected half-width of the headline's interval, of the log ratio.
    """

    repeats: int
    requests: int
    hours: float
    half_widths: dict[str, float]

    @property
    def worst(self) -> float:
        return max(self.half_widths.values())


def spreads_of(aggregate: Aggregate) -> list[Spread]:
    """From a campaign with blocks; empty without. All configurations together say what launches differ by."""
    found = []
    for entry in aggregate.repeats:
        within, requests = entry.within_launch_sd, entry.requests
        if entry.reference != "ref_safe" or within is None or requests is None or not entry.taxes:
            continue
        of_ratio = sum(tax.sd**2 for tax in entry.taxes) / len(entry.taxes)
        between = math.sqrt(max(0.0, of_ratio / LAUNCHES_IN_A_RATIO - within**2))
        found.append(Spread(entry.metric, between, within, requests))
    return found


def splits(spreads: list[Spread], costs: Costs, hours: float, confidence: float) -> list[Split]:
    """Every number of requests with as many blocks as fit; those with too few blocks for an interval are left out."""
    found = []
    for requests in REQUESTS:
        launch_s = costs.launch_s + requests * costs.request_s
        repeats = _most_blocks(costs, hours * 3600, launch_s)
        n = repeats + costs.blocks_beside
        if n < FEWEST_BLOCKS or repeats == 0:
            continue
        t = float(student_quantile((1 + confidence) / 2, n - 1))
        widths = {
            s.metric: t
            * math.sqrt(
                LAUNCHES_IN_A_RATIO
                * (repeats * s.variance(requests) + costs.blocks_beside * s.variance(costs.requests_beside))
            )
            / n
            for s in spreads
        }
        found.append(Split(repeats, requests, costs.wall_s(repeats, launch_s) / 3600, widths))
    return found


def _most_blocks(costs: Costs, budget_s: float, launch_s: float) -> int:
    """As many as are done in time; 0 where none is."""
    too_many = 1
    while costs.wall_s(too_many, launch_s) <= budget_s:
        too_many *= 2
    return max(0, bisect_right(range(too_many), budget_s, key=lambda n: costs.wall_s(n, launch_s)) - 1)


def proposal(spreads: list[Spread], costs: Costs, hours: float, confidence: float) -> list[str]:
    """Lines for a person: what each split gives, and the one to take.

    Args:
        confidence: of the headline's interval.
    """
    if not spreads:
        return ["no blocks of launches there (repeats), so nothing is known of what launches differ by"]
    found = splits(spreads, costs, hours, confidence)
    if not found:
        return [
            f"{hours:g} h leave no room for {FEWEST_BLOCKS} blocks: everything else takes {costs.wall_s(0, 0.0) / 3600:.1f} h. "
            "Shorten Phase B, or measure fewer configurations."
        ]
    best = min(found, key=lambda s: (round(s.worst, 4), s.hours))
    rows = [["repeats", "requests", "hours", *(s.metric for s in spreads), ""]]
    for split in found:
        widths = [f"{split.half_widths[s.metric]:.1%}" for s in spreads]
        of = [str(split.repeats), str(split.requests), f"{split.hours:.1f}"]
        rows.append([*of, *widths, "<-" if split is best else ""])
    return [
        *(
            f"{s.metric}: launches differ by {s.between:.1%}, {s.requests:g} requests of one leave {s.within:.1%} open"
            for s in spreads
        ),
        f"what {hours:g} h buy: half of the headline's expected {confidence * 100:g} % interval",
        "",
        *columns(rows),
        f"so: repeats: {best.repeats}, repeat_requests: {best.requests}",
    ]
