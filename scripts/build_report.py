"""Write report.html of a campaign from its aggregate.json and figures/."""

import argparse
from pathlib import Path

from connector_tax.base.door import run_door
from connector_tax.read.report.page import build_report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    args = parser.parse_args()
    print(f"wrote {build_report(args.root)}")


if __name__ == "__main__":
    run_door(main)
