"""Draw Figures 1 to 8 of a campaign from its aggregate.json; says which were left out, and why."""

import argparse
from pathlib import Path

from connector_tax.base.door import run_door
from connector_tax.read.figures.draw_all import draw_figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    args = parser.parse_args()
    for entry in draw_figures(args.root):
        text = entry["title"] if entry["drawn"] else f"left out: {entry['reason']}"
        print(f"Figure {entry['number']}: {text}")


if __name__ == "__main__":
    run_door(main)
