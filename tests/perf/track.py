"""How many shifts ``connector-tax track`` finds in 30 synthetic histories, and how often it finds one where there is none.

    .venv/bin/python tests/perf/track.py [--histories 30] [--without 200] [--seed 1] [--more]

A tax of one launch is a connector's launch over plain's. Launches differ by a standard deviation of 0.3 % in TPOT, and of 1.5 % in TTFT
p90, as A/A pairs on the virtual GPU do (docs/virtual-gpu.md). Each campaign also launches plain twice; the threshold is of those pairs.
A history has 20 to 60 campaigns, and one or two shifts of TPOT by 2 % up or down, with 8 campaigns before the first, 8 between two, and
2 or more behind the last. A shift counts as found where a confirmed change lies at its campaign or next to it. A history without a shift
has 30 campaigns, of TPOT in one half and of TTFT p90 in the other; any confirmed change in it is false, an alarm or not.

``--more`` counts as well: shifts of TTFT p90, shifts after bad nights, thresholds over few blocks, the series' own spread, and noise that
goes on from one campaign to the next (AR(1) with 0.5).
"""

import argparse
import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from connector_tax.base.seeds import stream
from connector_tax.base.statistics.change_points import (
    Shift,
    noise_limit,
    pooled_limit,
    search,
    shifts,
    spread_limit,
)

SD = {"tpot_p90": 0.003, "ttft_p90": 0.015}
SHIFT = 0.02
CONFIDENCE = 0.95
# Campaigns before the first shift, and between two.
APART = 8
Noise = Callable[[int, float, np.random.Generator], np.ndarray]


def pairs(n: int, sd: float, rng: np.random.Generator) -> np.ndarray:
    """Log ratios of two launches of one thing, one for each campaign."""
    return rng.normal(0.0, sd, n) - rng.normal(0.0, sd, n)


def going_on(n: int, sd: float, rng: np.random.Generator) -> np.ndarray:
    """The same, half of each campaign's being left in the next one."""
    fresh = pairs(n, sd, rng)
    for k in range(1, n):
        fresh[k] += 0.5 * fresh[k - 1]
    return fresh


def found_with(taxes: np.ndarray, limit: float, seed: int) -> list[Shift]:
    return shifts(taxes, search(taxes, lambda: stream(seed, "shuffles")), limit, CONFIDENCE)


def found_in(
    taxes: np.ndarray, sd: float, rng: np.random.Generator, seed: int, noise: Noise = pairs
) -> list[Shift]:
    return found_with(taxes, noise_limit(noise(taxes.size, sd, rng), CONFIDENCE)[0], seed)


def found_by_own_spread(taxes: np.ndarray, seed: int) -> list[Shift]:
    limit = spread_limit(taxes, search(taxes, lambda: stream(seed, "shuffles")), CONFIDENCE)
    return [] if limit is None else found_with(taxes, limit[0], seed)


def with_shifts(
    rng: np.random.Generator, metric: str = "tpot_p90", shift: float = SHIFT
) -> tuple[np.ndarray, list[int]]:
    """A history, and where it shifts."""
    n = int(rng.integers(20, 61))
    first = int(rng.integers(APART, n - 1))
    at = [first]
    if rng.random() < 0.5 and first + APART < n - 1:
        at.append(int(rng.integers(first + APART, n - 1)))
    taxes = pairs(n, SD[metric], rng)
    for place in at:
        taxes[place:] += rng.choice([-1, 1]) * math.log1p(shift)
    return taxes, at


def counted(found: Sequence[Shift], at: Sequence[int]) -> tuple[int, int]:
    """Shifts that were found, and confirmed changes elsewhere."""
    confirmed = [s.at for s in found if s.confirmed]
    return (
        sum(any(abs(place - s) <= 1 for s in confirmed) for place in at),
        sum(all(abs(place - s) > 1 for place in at) for s in confirmed),
    )


def power(args: argparse.Namespace, metric: str, shift: float, bad: float = 0.0) -> None:
    """
    Args:
        bad: what one campaign before the first shift is off by.
    """
    true = found = beside = 0
    for k in range(args.histories):
        rng = stream(args.seed, "with shifts", k)
        taxes, at = with_shifts(rng, metric, shift)
        taxes[4] += bad
        told = counted(found_in(taxes, SD[metric], rng, k), at)
        true, found, beside = true + len(at), found + told[0], beside + told[1]
    after = f" after a campaign that is off by {bad:.0%}" if bad else ""
    print(
        f"{args.histories} histories, {true} shifts of {metric} by {shift:.0%}{after}: {found} found ({found / true:.1%}), {beside} found elsewhere",
        flush=True,
    )


def alarms(
    args: argparse.Namespace, what: str, found: Callable[[int, np.random.Generator], list[Shift]]
) -> None:
    false = rose = suspected = 0
    for k in range(args.without):
        told = found(k, stream(args.seed, "without", k))
        false += any(s.confirmed for s in told)
        rose += any(s.confirmed and s.point > 0 for s in told)
        suspected += any(not s.confirmed and s.point > 0 for s in told)
    print(
        f"{args.without} A/A histories, {what}: {false} with a confirmed change, {rose} of them a rise; a rise suspected in {suspected}",
        flush=True,
    )


def of_pairs(k: int, rng: np.random.Generator, noise: Noise = pairs) -> list[Shift]:
    sd = SD["tpot_p90" if k % 2 else "ttft_p90"]
    return found_in(noise(30, sd, rng), sd, rng, k, noise)


def over_blocks(args: argparse.Namespace, blocks: int) -> None:
    """30 campaigns of so many blocks; the shift is behind the eighteenth."""
    found = false = 0
    limits = []
    for k in range(args.histories):
        rng = stream(args.seed, "blocks", k)
        own, again = (np.array([pairs(blocks, SD["tpot_p90"], rng) for _ in range(30)]) for _ in range(2))
        errors = again.std(axis=1, ddof=1) / math.sqrt(blocks)
        limit = pooled_limit(errors, np.full(30, blocks - 1.0), CONFIDENCE)[0]
        apart = math.sqrt(float((errors**2).mean())) * float(stats.t.ppf((1 + CONFIDENCE) / 2, blocks - 1))
        limits.append((limit, apart))
        taxes = own.mean(axis=1)
        false += any(s.confirmed for s in found_with(taxes, limit, k))
        taxes[18:] += math.log1p(SHIFT)
        found += counted(found_with(taxes, limit, k), [18])[0]
    pooled, apart = np.mean(limits, axis=0)
    print(
        f"{args.histories} histories over {blocks} blocks: threshold {pooled:.2%} (root mean square of half widths {apart:.2%}), "
        f"shift of {SHIFT:.0%} found in {found}, without it {false} with a confirmed change",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=30)
    parser.add_argument("--without", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--more", action="store_true")
    args = parser.parse_args()
    power(args, "tpot_p90", SHIFT)
    alarms(args, "threshold of pairs", of_pairs)
    if not args.more:
        return
    for bad in (0.05, 0.5):
        power(args, "tpot_p90", SHIFT, bad)
    for shift in (0.02, 0.05, 0.08):
        power(args, "ttft_p90", shift)
    for blocks in (3, 5):
        over_blocks(args, blocks)
    alarms(
        args,
        "threshold of the series' own spread",
        lambda k, rng: found_by_own_spread(pairs(30, 1.0, rng), k),
    )
    alarms(args, "noise that goes on, threshold of pairs", lambda k, rng: of_pairs(k, rng, going_on))
    alarms(
        args, "noise that goes on, own spread", lambda k, rng: found_by_own_spread(going_on(30, 1.0, rng), k)
    )


if __name__ == "__main__":
    main()
