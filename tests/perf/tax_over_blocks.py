"""How often the interval of a tax over blocks holds the truth, and whether verdict, p and table agree where it nearly touches a border.

    .venv/bin/python tests/perf/tax_over_blocks.py [--campaigns 4000] [--near 5000] [--confidence 0.95]

A campaign has 3, 5 or 10 blocks with plain twice and a connector whose true tax is 10 %; every launch differs by 0 to 3 % (standard
deviation), and whole blocks by as much again. Then taxes an end of whose interval lies within 1 % of the blocks' deviation beside zero:
the row of the table, what a verdict is taken from, and its p.
"""

import argparse
import math

import numpy as np

from connector_tax.intervals.resampling import Floats
from connector_tax.intervals.student import log_mean
from connector_tax.records.connector import PLAIN_AGAIN
from connector_tax.seeds import stream
from connector_tax.stats.launches import Launch, Launches
from connector_tax.stats.p_values import p_of
from connector_tax.stats.repeats import _drawn_jointly, mean_over_blocks, summarise
from connector_tax.stats.taxes import verdict

BLOCKS, SDS = (3, 5, 10), (0.0, 0.005, 0.01, 0.02, 0.03)
TRUE_TAX, OWN, DRAWS = 0.1, "x", 2000
# Without a deviation rounding alone lies between an end and the truth.
ROUNDING = 1e-12


def campaign(blocks: int, sd: float, rng: np.random.Generator) -> Launches:
    found: Launches = {}
    for b in range(1, blocks + 1):
        level = rng.normal(0.0, sd)
        for k, config in enumerate(("plain", PLAIN_AGAIN, OWN)):
            tax = math.log1p(TRUE_TAX) if config == OWN else 0.0
            found[f"r{b}", config] = Launch(
                f"r{b}", config, (3 * b + k) / 10, level + tax + rng.normal(0.0, sd), sd
            )
    return found


def held(blocks: int, sd: float, campaigns: int, confidence: float) -> float:
    rng, holds = stream(blocks, "tax over blocks", f"{sd:g}"), 0
    for _ in range(campaigns):
        entry = summarise(campaign(blocks, sd, rng), confidence)
        assert entry is not None, "every block has both plains"
        (tax,) = entry["taxes"]
        holds += tax["low"] - ROUNDING <= TRUE_TAX <= tax["high"] + ROUNDING
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


if __name__ == "__main__":
    main()
