"""What ``check``, ``fleet`` and ``load`` wrote, frozen: each still reads, and is written the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.documents.fleet import Fleet
from connector_tax.base.documents.load import Summary
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import document_of, read_document, read_json, to_json
from connector_tax.check.document import Check

FROZEN = Path(__file__).parents[2] / "data" / "commands"
DOCUMENTS: dict[str, Any] = {"check.json": Check, "fleet.json": Fleet, "load.json": Summary}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_an_earlier_version_reads_and_is_written_the_same(name: str) -> None:
    found = read_document(FROZEN / name, DOCUMENTS[name])
    assert json.loads(to_json(found)) == read_json(FROZEN / name)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_unknown_version_and_a_value_of_another_kind_are_refused(name: str) -> None:
    value = read_json(FROZEN / name)
    version = "schema_version" if "schema_version" in value else "schema"
    with pytest.raises(ArtifactError, match=rf"{name}: .*\b9\b.*{DOCUMENTS[name].REMEDY}"):
        document_of({**value, version: 9}, DOCUMENTS[name], name)
    part = "found" if name == "check.json" else "engines" if name == "fleet.json" else "cells"
    with pytest.raises(ArtifactError, match=rf"{name}: Expected `\w+`, got `str` - at `\$\.{part}`\. "):
        document_of({**value, part: "none"}, DOCUMENTS[name], name)
