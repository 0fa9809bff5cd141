"""Write a campaign's MANIFEST.tsv and its table in results/MANIFEST.md; if published, in MANIFEST.md too."""

import argparse
from pathlib import Path

from connector_tax.base.command import Command
from connector_tax.read.report.manifest import build_manifest


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, required=True, help="results/<campaign>")
    parser.add_argument(
        "--manifest", type=Path, help="write to this page only; publishes a campaign with MANIFEST.md"
    )


def _run(args: argparse.Namespace) -> int:
    for path in build_manifest(args.root, args.manifest):
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    Command(__doc__, _arguments, _run).main()
