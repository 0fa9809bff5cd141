"""``python tests/soak/random_answers_split.py --answers 60000 --first 0``: random answers, read byte by byte and in random pieces.

Each has one record. An answer that has two is one line, with the number that draws it again. Takes two minutes.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from random_answers import check_one_record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=60_000)
    parser.add_argument("--first", type=int, default=0, help="the first one's number")
    args = parser.parse_args()
    found: Counter[str | None] = Counter()
    for seed in range(args.first, args.first + args.answers):
        try:
            found[check_one_record(seed)] += 1
        except AssertionError as error:
            found["two records"] += 1
            print(f"answer {seed}: {error}")
    print(dict(found))
    sys.exit(bool(found["two records"]))


if __name__ == "__main__":
    main()
