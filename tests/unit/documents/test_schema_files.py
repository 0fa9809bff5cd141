"""The files of ``workflow/schemas`` are what the types say, and the YAML files of the project are what those say."""

import json
import subprocess
import sys

import pytest
import yaml
from builders import ROOT
from jsonschema import Draft202012Validator

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
