"""Write MANIFEST.tsv of a campaign and its table in results/MANIFEST.md; of a published one in the top-level page, too."""

import argparse
from pathlib import Path

from connector_tax.base.door import run_door
from connector_tax.read.report.manifest import build_manifest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument(
        "--manifest", type=Path, help="write to this page only; publishes a campaign with MANIFEST.md"
    )
    args = parser.parse_args()
    for path in build_manifest(args.root, args.manifest):
        print(f"wrote {path}")


if __name__ == "__main__":
    run_door(main)
