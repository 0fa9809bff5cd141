"""What of a page is the same whatever was measured: its sections, the heads of its tables, links, commands; and what no page may lack."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from builders import ROOT
from claim_cells import called_between
from page_statements import Page, Statement

TEMPLATE = (
    (ROOT / "src" / "connector_tax" / "read" / "report" / "report.html.j2").read_text().partition("<body>")[2]
)
# Headings whose section a page may lack, since there is nothing to put into it.
MAY_LACK = ("Flags",)
REPRODUCE = (
    "Numbers, figures and this page from the raw artifacts, on any machine (no GPU, no vLLM):",
    "The whole campaign, with the configuration file it was started from (as resolved: {root}/campaign.json):",
    "One server, exactly as it was launched:",
)
COMMANDS = (
    " ".join(f".venv/bin/connector-tax {s} --root {{root}}" for s in ("analyze", "figures", "report")),
    ".venv/bin/snakemake --cores {cards} --configfile config/<file>.yaml",
    "bash {root}/<date>_<configuration>/phase_a/launch.sh",
)  # fmt: skip


TAX_COLUMNS = (
    "TTFT p90", "TPOT p90", "median step", "of it in the connector's hooks", "of it elsewhere",
    "in the connector's hooks, per step (median)", "elsewhere in a step",
    "in the connector's hooks, also those between two steps", "median step less these hooks",
)  # fmt: skip


def bare(html: str) -> str:
    """Without marks, and what Jinja fills in as it stands there."""
    text = re.sub(r"<[^>]+>", "", re.sub(r"{%.*?%}", "", html, flags=re.DOTALL))
    return " ".join(text.replace("&lt;", "<").replace("&gt;", ">").split())


def _of(tag: str, within: str) -> list[str]:
    return [bare(body) for body in re.findall(rf"<{tag}[ >](?:[^>]*>)?(.*?)</{tag}>", within, re.DOTALL)]


LINKS = re.findall(r'<a href="#\w+">(.*?)</a>', TEMPLATE)
SECTIONS = re.findall(r"<h2[^>]*>(.*?)</h2>", TEMPLATE)
FOOTER = _of("footer", TEMPLATE)


def _heads() -> list[re.Pattern[str]]:
    """Each table's, in their order; a column that not every table of its kind has is optional. That of taxes at a rate has none of its own."""
    found = []
    for row in re.findall(r"{% call scrolling\((.*?)\) %}", TEMPLATE):
        if "table.columns" in row:
            continue
        # ``(["One"] if ... else [])`` is a column that not every table of its kind has.
        heads = [(re.escape(name), optional) for name, optional in re.findall(r'"([^"]*)"(\] if )?', row)]
        text = "".join(rf"(?: \| {name})?" if optional else rf" \| {name}" for name, optional in heads)
        found.append(re.compile(text.removeprefix(r" \| ")))
    return found


HEADS = _heads()


def frame_faults(s: Statement, aggregate: Mapping[str, Any]) -> list[str] | None:
    """None of a statement that is no part of the frame."""
    root = f"results/{aggregate.get('campaign') or '<campaign>'}"
    cards = len(aggregate["provenance"].get("cards") or ()) or 1
    if s.section.startswith("Heads of Taxes / At "):
        heads = s.text.split(" | ")
        own = [name for name in TAX_COLUMNS if name in heads]
        if heads != ["Configuration", *own]:
            return ["are not the heads of taxes at a reference rate"]
        apart = "median step" not in own
        kinds = (
            TAX_COLUMNS[5:7] if apart else TAX_COLUMNS[7:] if called_between(aggregate) else TAX_COLUMNS[3:5]
        )
        return [
            f"{name!r} is another's head" for name in own if name in TAX_COLUMNS[3:] and name not in kinds
        ]
    if s.section.startswith("Heads of "):
        return [] if any(p.fullmatch(s.text) for p in HEADS) else ["are heads of no table of the template"]
    known: Sequence[str] | None = {
        "Links": LINKS,
        "Footer": FOOTER,
        "Sections": SECTIONS,
        "How to reproduce": [w.format(root=root) for w in REPRODUCE],
        "How to reproduce commands": [w.format(root=root, cards=cards) for w in COMMANDS],
    }.get(s.section)
    if known is None:
        return None if not s.section.endswith(" commands") else ["no command belongs here"]
    return [] if s.text in known else ["is no part of the template"]


def lacking(page: Page, aggregate: Mapping[str, Any]) -> Iterator[str]:
    """What every page says, and text that nobody reads."""
    yield from (f"outside of everything that is read: {text[:200]!r}" for text in page.outside)
    sections = [s.section for s in page.statements]
    if sections.count("head headline") != 1:
        yield f"{sections.count('head headline')} headlines"
    banners, wanted = sum(s.startswith("head banner") for s in sections), _banners(aggregate)
    if banners != wanted:
        yield f"{banners} lines of a banner say what the numbers are of, and not {wanted}"
    flags = len((aggregate["reference_rates"] or {}).get("flags") or [])
    if sections.count("head flags") != flags:
        yield f"{sections.count('head flags')} flags of the reference rates are named, and not {flags}"
    named = [s.text for s in page.statements if s.section == "Sections"]
    for section in SECTIONS:
        if named.count(section) != 1 and not (section in MAY_LACK and section not in named):
            yield f"{section!r} is {named.count(section)} sections"


def _banners(aggregate: Mapping[str, Any]) -> int:
    """None of a campaign on a GPU; of a virtual one what it was, what it cannot show, what stood in, and how well it kept the time."""
    provenance = aggregate["provenance"]
    if provenance.get("engine_kind") == "virtual_gpu" and provenance.get("virtual_gpu") is not None:
        healths = [c.get("health") or {} for c in aggregate["cells"]]
        clocks = [h for c, h in zip(aggregate["cells"], healths, strict=True) if c.get("usable") is not False and c.get("verdict") == "valid" and h.get("device_clock")]  # fmt: skip
        return 2 + any(h.get("stand_ins") for h in healths) + bool(clocks)
    emulator = provenance.get("engine_kind") == "emulator" or (provenance.get("versions") or {}).get(
        "emulator"
    )
    return int(bool(emulator) or not provenance.get("gpu")) + bool(
        (aggregate.get("put_in") or {}).get("asked")
    )
