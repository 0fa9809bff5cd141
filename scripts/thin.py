"""Make a finished campaign small enough to publish, by the rule of connector_tax.base.artifacts.thinning."""

import argparse
from pathlib import Path

from connector_tax.base.artifacts.thinning import RULE, thin
from connector_tax.base.door import run_door


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"Kept: {RULE}.")
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument("--to", type=Path, required=True, help="a folder that does not exist")
    args = parser.parse_args()
    size = thin(args.root, args.to)
    print(f"{args.to}: {size / 2**20:.1f} MiB; kept: {RULE}")


if __name__ == "__main__":
    run_door(main)
