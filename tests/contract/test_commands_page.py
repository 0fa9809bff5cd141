"""``docs/commands.md`` has the help of every command as the code has it. Run by itself this writes it."""

import os
import re
from pathlib import Path

from connector_tax.cli import COMMANDS, MORE, command

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
BELOW = "do not edit below. -->\n"
# Every command has it.
HELP = re.compile(r"^  -h, --help +show this help message and exit\n", re.M)


def page() -> str:
    """Return the page: its own text, then every command in the order of ``connector-tax --help``."""
    width, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "100"
    parts = [PAGE.read_text().partition(BELOW)[0] + BELOW]
    for name in COMMANDS | MORE:
        text = command(name).parser(f"connector-tax {name}", whole=True).format_help()
        text = re.sub(r"\noptions:\n(?=\n|$)", "", HELP.sub("", text))
        parts.append(f"## connector-tax {name}\n\n~~~text\n{text}~~~\n")
    if width is not None:
        os.environ["COLUMNS"] = width
    return "\n".join(parts)


def test_the_page_has_the_help_of_every_command() -> None:
    assert PAGE.read_text() == page(), f"make it again: python {Path(__file__)}"


if __name__ == "__main__":
    PAGE.write_text(page())
