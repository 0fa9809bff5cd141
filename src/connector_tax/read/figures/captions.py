"""Captions of figures for papers and slides, as files beside them: ``captions.json``, and ``captions.tex`` for LaTeX."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from connector_tax.base.documents.figures import Entry
from connector_tax.base.files import write_json, write_text
from connector_tax.read.figures.words import hold_together

COMMAND = "connectorTaxCaption"
# What LaTeX reads as its own, and what pdfLaTeX lacks in its oldest encoding of fonts (OT1), which a document has by default.
_TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    # Names of configurations are long words, which may break here and nowhere else.
    "_": r"\_\discretionary{}{}{}",
    "`": r"\textasciigrave{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "\N{MINUS SIGN}": r"\ensuremath{-}",
    "\N{MICRO SIGN}": r"\textmu{}",
    "\N{GREEK SMALL LETTER MU}": r"\textmu{}",
    "\N{NO-BREAK SPACE}": "~",
    "\N{MULTIPLICATION SIGN}": r"\ensuremath{\times}",
    "\N{HORIZONTAL ELLIPSIS}": r"\ldots{}",
    "\N{GREATER-THAN OR EQUAL TO}": r"\ensuremath{\geq}",
    "\N{LESS-THAN OR EQUAL TO}": r"\ensuremath{\leq}",
    "\N{ALMOST EQUAL TO}": r"\ensuremath{\approx}",
    "\N{INFINITY}": r"\ensuremath{\infty}",
    "\N{RIGHTWARDS ARROW}": r"\ensuremath{\rightarrow}",
    "\N{THIN SPACE}": r"\,",
    "\N{NARROW NO-BREAK SPACE}": r"\,",
}
# Two of them side by side are one other letter: two hyphens are a dash.
_LIGATURES = re.compile(r"(?<=-)(?=-)|(?<=')(?=')|(?<=,)(?=,)")
_HEAD = r"""% Captions of the figures in this folder. \input this file in the preamble, then
%   \begin{figure}\includegraphics{fig4_tax_bars_1col}\caption{\connectorTaxCaption{fig4_tax_bars}}\end{figure}
\providecommand{\connectorTaxCaption}[1]{\csname connectorTaxCaption@#1\endcsname}
"""


@dataclass(frozen=True, slots=True)
class Caption:
    """
    Attributes:
        files: those with the picture, in each form of the purpose.
        left_out: of the forms that have no picture: name of the file without its suffix -> why.
    """

    entry: Entry
    files: Sequence[str]
    left_out: Mapping[str, str]


def write_captions(captions: Sequence[Caption], note: str, folder: Path, *, tex: bool) -> None:
    """``captions.json`` and, with ``tex``, ``captions.tex`` in ``folder``.

    Args:
        note: what every picture of the campaign must say about itself; stands in the pictures as well.
    """
    rows = [
        {
            "name": c.entry.name,
            "number": c.entry.number,
            "title": c.entry.title,
            "caption": c.entry.caption,
            "files": list(c.files),
            "left_out": dict(c.left_out),
        }
        for c in captions
    ]
    write_json(folder / "captions.json", {"schema": 1, "note": note, "figures": rows})
    if tex:
        drawn = [c.entry for c in captions if c.entry.drawn]
        write_text(folder / "captions.tex", _HEAD + "".join(_definition(e, note) for e in drawn))


def _definition(entry: Entry, note: str) -> str:
    ending = "" if entry.title.endswith(".") else "."
    text = f"\\textbf{{{tex_text(entry.title)}{ending}}} {tex_text(entry.caption)}"
    behind = f" {tex_text(note)}." if note else ""
    return f"\\expandafter\\def\\csname {COMMAND}@{entry.name}\\endcsname{{%\n  {text}{behind}%\n}}\n"


def tex_text(text: str) -> str:
    """As LaTeX sets it, numbers tied to their units; letters of other scripts stay, and are the business of the document's fonts."""
    apart = _LIGATURES.split(hold_together(text))
    return "{}".join("".join(_TEX.get(letter, letter) for letter in piece) for piece in apart)
