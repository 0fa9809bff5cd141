"""What load generator, launches and commands did when ``data/`` was written, they do now."""

from pathlib import Path

import pytest

from . import DATA, kept
from .make import SUBJECTS, differences, found


@pytest.mark.parametrize("subject", SUBJECTS)
def test_behaviour_is_as_kept(subject: str, tmp_path: Path) -> None:
    lines = list(differences(kept(subject), found(subject, tmp_path)))
    assert not lines, "\n".join(
        [f"{len(lines)} entries of {subject}.json differ, kept -> found:", *lines]
        + [f"If that is what the change is for: python -m tests.golden.make {subject}"]
    )


def test_every_file_has_a_subject() -> None:
    assert {path.stem for path in DATA.glob("*.json")} == SUBJECTS.keys()


def test_a_difference_names_its_entry_and_both_values() -> None:
    old = {"a": {"n": 1, "l": [1, 2, 3]}, "gone": 0, "same": [3]}
    new = {"a": {"n": 2, "l": [1, 5, 6, 3]}, "same": [3], "l": [4]}
    assert list(differences(old, new)) == [
        "a > l[1]: 2 -> 5 6",
        "a > n: 1 -> 2",
        "gone: 0 -> null",
        "l: null -> [4]",
    ]
