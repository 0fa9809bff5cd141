"""What MkDocs does to the pages: the help of every command is put where ``commands.md`` has a place for it."""

import os
from typing import Any

from connector_tax.cli import COMMANDS, command

PLACE = "<!-- help of every command -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with the helps; other pages as they are."""
    return markdown.replace(PLACE, _helps()) if PLACE in markdown else markdown


def _helps() -> str:
    # argparse wraps by it, and a site is built in terminals of any width.
    os.environ["COLUMNS"] = "84"
    parts = []
    for name, about in COMMANDS.items():
        text = command(name).parser(f"connector-tax {name}").format_help()
        parts.append(f"## connector-tax {name}\n\n{about[0].upper()}{about[1:]}.\n\n```text\n{text}```\n")
    return "\n".join(parts)
