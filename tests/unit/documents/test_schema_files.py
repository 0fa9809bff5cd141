"""The files of ``workflow/schemas`` are what the types say, and the YAML files of the project are what those say."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT

SCHEMA = ROOT / "workflow" / "schemas" / "aggregate.schema.json"


def test_making_them_again_changes_no_byte() -> None:
    before = {path: path.read_bytes() for path in SCHEMA.parent.iterdir()}
    subprocess.run([sys.executable, str(ROOT / "scripts" / "make_schemas.py")], check=True)
    assert {path: path.read_bytes() for path in SCHEMA.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("config", ["config", "demo", "h200", "virtual-gpu", "vllm-cpu"]),
        ("connectors", ["connectors"]),
        ("fleet", ["fleet_demo", "fleet"]),
        ("gpu", ["gpus/h200", "gpus/h20"]),
        ("sweep", ["sweep"]),
    ],
)
def test_what_a_person_writes_is_valid_and_a_typo_in_it_is_not(name: str, files: list[str]) -> None:
    """For editors, which take the schema for the file."""
    validator = Draft202012Validator(json.loads((SCHEMA.parent / f"{name}.schema.json").read_text()))
    assert r"\Z" not in json.dumps(validator.schema), "which JavaScript takes for the letter"
    for file in files:
        value = yaml.safe_load((ROOT / "config" / f"{file}.yaml").read_text())
        assert validator.is_valid(value), next(validator.iter_errors(value)).message
        entry = value["plain"] if name == "connectors" else value
        assert not validator.is_valid({**value, "plain": {**entry, "lable": "x"}, "seeed": {}})


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value[k] for k in ("$ref",) if k in value)
        for inner in value.values():
            yield from references(inner)
    if isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_part_is_there_and_is_asked_for() -> None:
    for path in SCHEMA.parent.iterdir():
        schema = json.loads(path.read_text())
        assert {r.removeprefix("#/$defs/") for r in references(schema)} == set(schema["$defs"]), path


def test_words_of_docstrings_stand_beside_their_keys() -> None:
    blocks = json.loads(SCHEMA.read_text())["$defs"]["TaxPart"]["properties"]["n_blocks"]
    assert blocks == {
        "description": "the fewest blocks of the taxes in it; null if the number is unavailable, or nothing was measured.",
        "anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}],
    }


def test_a_key_that_is_always_written_is_required_and_no_other() -> None:
    parts = json.loads(SCHEMA.read_text())["$defs"]
    assert "host_speed_slope" in parts["Repeats"]["required"], "earlier versions lack it; this one writes it"
    assert "stopping" not in parts["MeasuredCell"]["required"], "only where a rule ended the cell"
    assert "reason" not in parts["Quantity"]["required"], "absent where all is known"
