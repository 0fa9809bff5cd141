"""YAML that PyYAML takes without a word and that loses half of what is written."""

from pathlib import Path

import pytest

from connector_tax.base.config.checked import read_yaml
from connector_tax.base.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "axes:\n  m: [1]\n  n: [2]\n  m: [3]\n",
            "line 4, column 3: this key stands in line 2 of the same mapping already",
        ),
        ("a: [{b: 1}, {c: 1, c: 2}]\n", "line 1, column 20: this key"),
        ("a: &x {b: *x}\n", "line 1, column 4: an alias stands inside of what it stands for"),
    ],
)
def test_it_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_yaml(file)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_what_is_merged_may_be_overridden_and_shared(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\nc: *x\n'1': 0\n1: 0\n")
    assert read_yaml(file) == {
        "a": {"k": 1, "l": 2},
        "b": {"k": 3, "l": 2},
        "c": {"k": 1, "l": 2},
        "1": 0,
        1: 0,
    }
