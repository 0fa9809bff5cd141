"""How many shifts of 2 % ``connector-tax track`` finds in 30 synthetic histories, and how often it finds one where there is none.

    .venv/bin/python tests/perf/track.py [--histories 30] [--without 200] [--seed 1]

A tax of one launch is a connector's launch over plain's. Launches differ by a standard deviation of 0.3 % in TPOT, and of 1.5 % in TTFT
p90, as A/A pairs on the virtual GPU do (docs/virtual-gpu.md). Each campaign also launches plain twice; the threshold is of those pairs.
A history has 20 to 60 campaigns, and one or two shifts of TPOT by 2 % up or down, with 8 campaigns before the first, 8 between two, and
2 or more behind the last. A shift counts as found where a confirmed change lies at its campaign or next to it. A history without a shift
has 30 campaigns, of TPOT in one half and of TTFT p90 in the other; any confirmed change in it is false, an alarm or not.
"""

import argparse
import math

import numpy as np

from connector_tax.base.seeds import stream
from connector_tax.base.statistics.change_points import Shift, noise_limit, shifts

SD = {"tpot_p90": 0.003, "ttft_p90": 0.015}
SHIFT = 0.02
CONFIDENCE = 0.95
# Campaigns before the first shift, and between two.
APART = 8


def pairs(n: int, sd: float, rng: np.random.Generator) -> np.ndarray:
    """Log ratios of two launches of one thing, one for each campaign."""
    return rng.normal(0.0, sd, n) - rng.normal(0.0, sd, n)


def found_in(taxes: np.ndarray, sd: float, rng: np.random.Generator) -> list[Shift]:
    threshold = noise_limit(pairs(taxes.size, sd, rng), CONFIDENCE)
    return shifts(taxes, threshold, CONFIDENCE, rng)


def with_shifts(rng: np.random.Generator) -> tuple[np.ndarray, list[int]]:
    """A history of TPOT, and where it shifts."""
    n = int(rng.integers(20, 61))
    first = int(rng.integers(APART, n - 1))
    at = [first]
    if rng.random() < 0.5 and first + APART < n - 1:
        at.append(int(rng.integers(first + APART, n - 1)))
    taxes = pairs(n, SD["tpot_p90"], rng)
    for place in at:
        taxes[place:] += rng.choice([-1, 1]) * math.log1p(SHIFT)
    return taxes, at


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=30)
    parser.add_argument("--without", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    true = found = beside = 0
    for k in range(args.histories):
        rng = stream(args.seed, "with shifts", k)
        taxes, at = with_shifts(rng)
        confirmed = [s.at for s in found_in(taxes, SD["tpot_p90"], rng) if s.confirmed]
        true += len(at)
        found += sum(any(abs(place - s) <= 1 for s in confirmed) for place in at)
        beside += sum(all(abs(place - s) > 1 for place in at) for s in confirmed)
    print(
        f"{args.histories} histories, {true} shifts of {SHIFT:.0%}: {found} found ({found / true:.1%}), {beside} found elsewhere"
    )
    false = rose = suspected = 0
    for k in range(args.without):
        rng = stream(args.seed, "without", k)
        sd = SD["tpot_p90" if k % 2 else "ttft_p90"]
        told = found_in(pairs(30, sd, rng), sd, rng)
        false += any(s.confirmed for s in told)
        rose += any(s.confirmed and s.point > 0 for s in told)
        suspected += any(not s.confirmed and s.point > 0 for s in told)
    print(
        f"{args.without} A/A histories: {false} with a confirmed change, {rose} of them a rise; a rise suspected in {suspected}"
    )


if __name__ == "__main__":
    main()
