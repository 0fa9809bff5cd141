"""The base of everything that is written down: frozen, its fields named in the JSON as here."""

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a document. A field whose value is ``UNSET`` is not in the file; one that is None is null there."""
