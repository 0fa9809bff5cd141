"""Try step timing and the no-op connector on every vLLM release from 0.11 on; prints the tables that docs/releases.md sums up.

Downloads one wheel after the other (15 MB each, the newest may be 350 MB) and installs none.
"""

import argparse
import sys

from connector_tax.base.door import run_door
from connector_tax.run.engine.releases import available, fit, hook_order_table, table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", help="only these releases, such as 0.16.0; all by default")
    args = parser.parse_args()
    fits = [
        fit(package, version)
        for package, version in available()
        if version in args.versions or not args.versions
    ]
    print(table(fits), hook_order_table(fits), sep="\n\n")
    if not fits or not all(f.ok for f in fits):
        sys.exit(1)


if __name__ == "__main__":
    run_door(main)
