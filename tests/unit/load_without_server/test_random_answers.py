"""Same bytes, same record: however reads group the bytes of an answer, only times differ, and these are of the reads of their bytes."""

import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from random_answers import check_one_record

ANSWERS = 1000


def test_any_split_of_any_answer_gives_one_record() -> None:
    found = Counter(check_one_record(seed) for seed in range(ANSWERS))
    assert min(found[s] for s in ("ok", "malformed", "stream_error", "truncated", "http_error")) > 50
