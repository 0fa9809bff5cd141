"""JSON to a document's type. What does not fit is told in the words of msgspec, with the file, the place and what would do."""

from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, get_args

import msgspec

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import read_json


class _Document(Protocol):
    """A type with ``schema: Literal[1]``, whose numbers are the versions that are read; a part of a document has none."""

    REMEDY: ClassVar[str]


D = TypeVar("D", bound=_Document)


def read_document(path: Path, kind: type[D]) -> D:
    """The document at ``path``.

    Raises:
        ArtifactError: missing, not JSON, of an unknown version or of another form; names the place and what would do.
    """
    return document_of(read_json(path), kind, str(path))


def document_of(value: Any, kind: type[D], where: str) -> D:
    """``value``, JSON that was parsed, as a ``kind``.

    Args:
        where: the file, for messages.

    Raises:
        ArtifactError: as ``read_document``.
    """
    known = _versions(kind)
    # One without a number is of the first version.
    if known and isinstance(value, dict) and value.get("schema", 1) not in known:
        raise ArtifactError(
            f"{where}: schema {value.get('schema')!r}, and this version of connector-tax reads {' and '.join(map(str, known))}. "
            f"Use the version that wrote it. {kind.REMEDY}"
        )
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ArtifactError(f"{where}: {error}. {kind.REMEDY}") from error


def as_json(document: Any) -> Any:
    """A document that was read, or a part of one, as parsed JSON again."""
    return msgspec.json.decode(msgspec.json.encode(document))


def _versions(kind: type[Any]) -> tuple[int, ...]:
    fields = msgspec.structs.fields(kind)
    return next((get_args(field.type) for field in fields if field.name == "schema"), ())
