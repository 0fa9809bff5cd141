"""``workflow/schemas/aggregate.schema.json`` is what the types of ``aggregate.json`` say."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from connector_tax.base.documents.aggregate.schema import aggregate_schema

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import ROOT

SCHEMA = ROOT / "workflow" / "schemas" / "aggregate.schema.json"


def test_the_file_is_made_from_the_types() -> None:
    assert json.loads(SCHEMA.read_text()) == aggregate_schema(), "run scripts/make_schemas.py"


def test_making_it_again_changes_no_byte() -> None:
    before = SCHEMA.read_bytes()
    subprocess.run([sys.executable, str(ROOT / "scripts" / "make_schemas.py")], check=True)
    assert SCHEMA.read_bytes() == before


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value[k] for k in ("$ref",) if k in value)
        for inner in value.values():
            yield from references(inner)
    if isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_every_part_is_there_and_is_asked_for() -> None:
    schema = aggregate_schema()
    assert {r.removeprefix("#/$defs/") for r in references(schema)} == set(schema["$defs"])


def test_a_key_that_is_always_written_is_required_and_no_other() -> None:
    parts = aggregate_schema()["$defs"]
    assert "host_speed_slope" in parts["Repeats"]["required"], "earlier versions lack it; this one writes it"
    assert "stopping" not in parts["MeasuredCell"]["required"], "only where a rule ended the cell"
    assert "reason" not in parts["Quantity"]["required"], "absent where all is known"
