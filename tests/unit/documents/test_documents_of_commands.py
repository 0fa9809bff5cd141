"""What ``fleet``, ``check`` and ``load`` wrote before their documents had types, frozen: each still reads, and is written the same."""

import json
from pathlib import Path

import msgspec
import pytest

from connector_tax.base.documents.fleet import Fleet

FROZEN = Path(__file__).parents[2] / "data" / "documents"
DOCUMENTS: dict[str, type[msgspec.Struct]] = {"fleet.json": Fleet}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_of_an_earlier_version_reads_and_is_written_the_same(name: str) -> None:
    content = (FROZEN / name).read_bytes()
    found = msgspec.json.decode(content, type=DOCUMENTS[name])
    assert json.loads(msgspec.json.encode(found)) == json.loads(content)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_unknown_version_is_refused(name: str) -> None:
    value = json.loads((FROZEN / name).read_bytes())
    version = "schema_version" if "schema_version" in value else "schema"
    with pytest.raises(msgspec.ValidationError, match=rf"Invalid enum value 2 - at `\$\.{version}`"):
        msgspec.convert({**value, version: 2}, DOCUMENTS[name])
