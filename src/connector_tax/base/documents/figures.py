"""``figures/index.json``: every figure of a campaign, drawn or left out."""

from pathlib import Path
from typing import ClassVar, Literal

import msgspec

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import is_bare, read_document, shown


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Names beside ``index.json``."""

    svg: str
    png: str = ""
    csv: str


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One figure.

    Attributes:
        reason: why there is no picture.
        files: None without a picture.
    """

    name: str
    number: int
    drawn: bool
    reason: str = ""
    title: str = ""
    caption: str = ""
    files: Files | None = None


class FigureIndex(msgspec.Struct, frozen=True, kw_only=True):
    REMEDY: ClassVar[str] = "Draw the figures again with connector-tax report."

    schema: Literal[1] = 1
    figures: tuple[Entry, ...]


def read_figure_index(path: Path) -> FigureIndex:
    """Read the index of a campaign's figures.

    Raises:
        ArtifactError: unreadable, of another form, or it names a file that is not beside it; names the place.
    """
    index = read_document(path, FigureIndex)
    for k, entry in enumerate(index.figures):
        if entry.drawn and entry.files is None:
            raise ArtifactError(f"{path}: figures[{k}] is drawn and names no files. {FigureIndex.REMEDY}")
        names = {} if entry.files is None else {"svg": entry.files.svg, "csv": entry.files.csv}
        for kind, name in names.items():
            if not is_bare(name):
                raise ArtifactError(
                    f"{path}: figures[{k}].files.{kind} is no bare name: {shown(name)}. {FigureIndex.REMEDY}"
                )
    return index
