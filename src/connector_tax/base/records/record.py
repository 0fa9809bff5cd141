"""The bases of what is written down and of what a person writes: frozen, fields named in the file as here."""

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a document. A field whose value is ``UNSET`` is not in the file; one that is None is null there."""


# Flags are given more than once, and a version may be 8.8.
_MAY_REPEAT = ("extra_args", "compute_capability")


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a file that a person writes: a key that it has not is refused, and so is an entry twice in a list."""

    def __post_init__(self) -> None:
        for name in set(self.__struct_fields__).difference(_MAY_REPEAT):
            entries = getattr(self, name)
            if isinstance(entries, tuple):
                for k, entry in enumerate(entries):
                    if entry in entries[:k]:
                        raise ValueError(f"{name}[{k}]: stands there already; leave one of the two out")
