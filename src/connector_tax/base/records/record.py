"""The base of everything that is written down: frozen, its fields named in the JSON as here."""

from typing import Any

import msgspec
from msgspec import UNSET


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a document.

    A field whose value is ``UNSET`` is not in the file; one that is None is null there.

    The three methods read a record as the dictionary that it was before it had a type. They are for callers that do not ask for
    attributes yet, and for nobody else.
    """

    def __getitem__(self, name: str) -> Any:
        found = getattr(self, name, UNSET)
        if found is UNSET:
            raise KeyError(name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        found = getattr(self, name, UNSET)
        return default if found is UNSET else found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and getattr(self, name, UNSET) is not UNSET
