"""Templates: the text around facts, in Jinja files beside the code that provides the facts."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from connector_tax.base.files import printable

MOST_CHARACTERS = 20_000


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _one_line(value: Any) -> Any:
    """Return text as one printable line: names come from files that anybody may have written."""
    return printable(value, MOST_CHARACTERS) if type(value) is str else value


@cache
def template(path: Path) -> Template:
    """Return a template; every value in it is one printable line, escaped in HTML."""
    environment = Environment(  # nosec B701  # text that is no HTML is not escaped
        loader=FileSystemLoader(path.parent),
        autoescape=path.name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_one_line,
    )
    environment.filters["columns"] = columns
    return environment.get_template(path.name)
