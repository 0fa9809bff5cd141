"""How often the interval of a tax over blocks holds the truth, whether verdict, p and table agree where it nearly touches a border, and
how true it is what is said of the tax that so many blocks find in four of five campaigns.

    .venv/bin/python tests/perf/tax_over_blocks.py [--campaigns 4000] [--near 5000] [--confidence 0.95]

A campaign has 3, 5 or 10 blocks with plain twice and a connector whose true tax is 10 %; every launch differs by 0 to 3 % (standard
deviation), and whole blocks by as much again. Then taxes an end of whose interval lies within 1 % of the blocks' deviation beside zero:
the row of the table, what a verdict is taken from, and its p. At last the tax that a campaign says it would find in four of five: how often its
interval holds the one that is found in 80 % of new campaigns, how often its best guess is above that, and in how many new campaigns a tax is
found that is as large as the lower end, the best guess, and the upper end.
"""

import argparse
import math

import numpy as np

from connector_tax.base.documents.aggregate import Blocks, Bounds
from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.seeds import stream
from connector_tax.base.statistics.decisions import p_of
from connector_tax.base.statistics.distributions import log_mean
from connector_tax.base.statistics.resampling import Floats
from connector_tax.read.stats.launches import Launch, Launches
from connector_tax.read.stats.repeats import _drawn_jointly, mean_over_blocks, smallest_detectable, summarise
from connector_tax.read.stats.taxes import verdict

BLOCKS, SDS = (3, 5, 10), (0.0, 0.005, 0.01, 0.02, 0.03)
TRUE_TAX, OWN, DRAWS = 0.1, "x", 2000
# Without a deviation rounding alone lies between an end and the truth.
ROUNDING = 1e-12


def campaign(blocks: int, sd: float, rng: np.random.Generator, tax: float = TRUE_TAX) -> Launches:
    found: Launches = {}
    for b in range(1, blocks + 1):
        level = rng.normal(0.0, sd)
        for k, config in enumerate(("plain", PLAIN_AGAIN, OWN)):
            own = math.log1p(tax) if config == OWN else 0.0
            found[f"r{b}", config] = Launch(
                f"r{b}", config, (3 * b + k) / 10, level + own + rng.normal(0.0, sd), sd
            )
    return found


def held(blocks: int, sd: float, campaigns: int, confidence: float) -> float:
    rng, holds = stream(blocks, "tax over blocks", f"{sd:g}"), 0
    for _ in range(campaigns):
        (tax,) = _entry(campaign(blocks, sd, rng), confidence).taxes
        holds += tax.low - ROUNDING <= TRUE_TAX <= tax.high + ROUNDING
    return holds / campaigns


def near_zero(rng: np.random.Generator, confidence: float) -> Floats:
    """Log ratios of so many blocks, one end of whose interval nearly is zero."""
    ratios: Floats = rng.normal(0.0, 0.02, rng.choice(BLOCKS))
    mean = log_mean(ratios)
    end = math.log1p(mean.interval(confidence)[rng.integers(2)])
    return ratios - end + rng.uniform(-0.01, 0.01) * ratios.std(ddof=1)


def disagreements(taxes: int, confidence: float) -> tuple[int, int]:
    """Of verdict and table, and of p and table."""
    rng, of_verdict, of_p = stream(taxes, "near zero"), 0, 0
    for _ in range(taxes):
        ratios = near_zero(rng, confidence)
        row = mean_over_blocks(ratios, confidence)
        estimate = _drawn_jointly(ratios[:, None], [OWN], DRAWS, rng)[OWN]
        word = "tax" if row.low > 0 else "gain" if row.high < 0 else "no_tax_found"
        p = p_of(estimate, confidence, lambda low, high: (low or 0.0) > 0 or (high or 0.0) < 0)
        of_verdict += verdict(estimate, confidence) != word or estimate.interval(confidence) != (
            row.low,
            row.high,
        )
        of_p += (p is not None and p <= 1 - confidence) != (word != "no_tax_found")
    return of_verdict, of_p


def four_of_five(
    blocks: int, sd: float, campaigns: int, confidence: float
) -> tuple[float, float, list[float]]:
    """How often the interval holds the true size, how often the best guess is above it, and how often a new campaign finds either end and the guess."""
    rng = stream(blocks, "found in four of five")
    error = sd * math.sqrt(1.5 / blocks)
    true = math.expm1(smallest_detectable(error, freedom=blocks - 1, confidence=confidence))
    holds, above, found = 0, 0, [0, 0, 0]
    for _ in range(campaigns):
        told = _entry(campaign(blocks, sd, rng), confidence).noise_floor.found_4_of_5
        assert isinstance(told, Bounds)
        holds += told.low <= true <= told.high
        above += told.point > true
        for k, name in enumerate(("low", "point", "high")):
            (tax,) = _entry(campaign(blocks, sd, rng, getattr(told, name)), confidence).taxes
            found[k] += tax.low > 0
    return holds / campaigns, above / campaigns, [f / campaigns for f in found]


def _entry(launches: Launches, confidence: float) -> Blocks:
    entry = summarise(launches, confidence)
    assert entry is not None, "every block has both plains"
    return entry


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=4000)
    parser.add_argument("--near", type=int, default=5000)
    parser.add_argument("--confidence", type=float, default=0.95)
    args = parser.parse_args()
    print("blocks  " + "".join(f"{f'launches differ by {sd:.1%}':>26}" for sd in SDS))
    for blocks in BLOCKS:
        shares = [held(blocks, sd, args.campaigns, args.confidence) for sd in SDS]
        print(f"{blocks:6}  " + "".join(f"{share:26.1%}" for share in shares), flush=True)
    of_verdict, of_p = disagreements(args.near, args.confidence)
    print(f"{args.near} taxes near zero: verdict and table disagree in {of_verdict}, p and table in {of_p}")
    for blocks in BLOCKS:
        holds, above, found = four_of_five(blocks, 0.01, args.campaigns, args.confidence)
        ends = ", ".join(f"{share:.1%}" for share in found)
        print(
            f"{blocks} blocks: held {holds:.1%}, best guess too large {above:.1%}; lower end, guess and upper end found in {ends}"
        )


if __name__ == "__main__":
    main()
