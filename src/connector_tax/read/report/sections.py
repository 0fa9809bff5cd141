"""A part of a page that a program writes, between two comment lines; the rest of the page belongs to people."""

import re


def begin_line(name: str) -> str:
    return f"<!-- begin {name} -->"


def with_part(text: str, name: str, part: str) -> str:
    """``text`` with the part of that name replaced, or appended where there is none; all other text is kept as it is."""
    begin, end = begin_line(name), f"<!-- end {name} -->"
    section = f"{begin}\n{part}\n{end}"
    # Whole lines: a cell of a table may hold the same words.
    pattern = re.compile(f"^{re.escape(begin)}\n.*?^{re.escape(end)}$", re.DOTALL | re.MULTILINE)
    if pattern.search(text):
        return pattern.sub(lambda _: section, text, count=1)
    return f"{text.rstrip()}\n\n{section}\n"
