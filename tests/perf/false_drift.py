"""How often a campaign in which nothing drifts is said to drift: 4000 campaigns of each kind.

    .venv/bin/python tests/perf/false_drift.py [--campaigns 4000] [--confidence 0.95]

Launches differ by 1 %, and whole blocks by 0 to 3 % more. A block launches every configuration once in random order and plain twice, one
launch every six minutes; the line is the analysis' own. A drift is said where its interval excludes zero.
"""

import argparse

import numpy as np

from connector_tax.base.records.connector import PLAIN_AGAIN
from connector_tax.base.seeds import stream
from connector_tax.read.stats.launches import Launch, Launches
from connector_tax.read.stats.repeats import drift

CONFIGS = ("plain", PLAIN_AGAIN, "a", "b", "c")
BLOCKS = (3, 4, 5, 10)
BLOCK_SDS = (0.0, 0.01, 0.02, 0.03)
LAUNCH_SD, LAUNCHES_PER_H = 0.01, 10


def campaign(blocks: int, block_sd: float, rng: np.random.Generator) -> Launches:
    found: Launches = {}
    for b in range(blocks):
        level = rng.normal(0.0, block_sd)
        for config in rng.permutation(CONFIGS):
            start_h, value = len(found) / LAUNCHES_PER_H, level + rng.normal(0.0, LAUNCH_SD)
            found[f"r{b}", str(config)] = Launch(f"r{b}", str(config), start_h, value, LAUNCH_SD)
    return found


def false_share(blocks: int, block_sd: float, campaigns: int, confidence: float) -> float:
    rng = stream(blocks, "false drift", f"{block_sd:g}")
    false = 0
    for _ in range(campaigns):
        line = drift(campaign(blocks, block_sd, rng), [f"r{b}" for b in range(blocks)], confidence)
        assert line is not None, "every block has both plains"
        false += not line.change.low <= 0 <= line.change.high
    return false / campaigns


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--campaigns", type=int, default=4000)
    parser.add_argument("--confidence", type=float, default=0.95)
    args = parser.parse_args()
    print("blocks  " + "".join(f"{f'blocks differ by {sd:.0%}':>22}" for sd in BLOCK_SDS))
    for blocks in BLOCKS:
        shares = [false_share(blocks, sd, args.campaigns, args.confidence) for sd in BLOCK_SDS]
        print(f"{blocks:6}  " + "".join(f"{share:22.1%}" for share in shares), flush=True)


if __name__ == "__main__":
    main()
