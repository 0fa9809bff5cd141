"""Write MANIFEST.tsv of a campaign and its table in the top-level MANIFEST.md."""

import argparse
from pathlib import Path

from connector_tax.doors import run_door
from connector_tax.report.manifest import build_manifest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument("--manifest", type=Path, help="default: MANIFEST.md beside results/")
    args = parser.parse_args()
    for path in build_manifest(args.root, args.manifest):
        print(f"wrote {path}")


if __name__ == "__main__":
    run_door(main)
