"""What the page of a running campaign shows, as HTML: the whole page, and the part of it that changes."""

import base64
import hashlib
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.errors import ConfigError, ConnectorTaxError
from connector_tax.base.opening import printable
from connector_tax.base.redaction import published_text
from connector_tax.base.units import duration_text
from connector_tax.read.report.status import Standing, not_started, standing
from connector_tax.read.watch.making import Maker, Report

HERE = Path(__file__).parent
STYLES, SCRIPT = (HERE.parent / "report" / "report.css", HERE / "watch.css"), HERE / "watch.js"
REFRESH_S = 5


@dataclass(frozen=True, slots=True)
class View:
    """
    Attributes:
        fault: why nothing is known of the campaign; empty where something is.
        making: how a report is made, and of what the one that is shown is.
        failed: why the last one could not be made.
        can_ask: whether the page has a button for a report.
        report: number of the one that is shown; empty where there is none.
        now: when this was found.
        age: of the report, with a comma in front; empty where there is none.
    """

    campaign: str
    standing: Standing | None
    fault: str
    making: tuple[str, ...]
    failed: str
    can_ask: bool
    report: str
    now: str
    age: str

    @property
    def title(self) -> str:
        found = self.standing
        return f"{found.ended} of {found.runs}: {self.campaign}" if found else self.campaign


def view_of(
    folder: CampaignFolder,
    config: CampaignConfig | ConfigError,
    config_file: Path,
    maker: Maker,
    now: datetime,
) -> View:
    """What lies on disk now; a campaign that was not started, or cannot be read, is said.

    Args:
        config: or why its file cannot be read any more.
    """
    found, fault = None, ""
    try:
        if isinstance(config, ConfigError):
            raise config
        folder.links()
        if folder.campaign_file.exists():
            found = standing(folder, config, config_file)
        else:
            fault = not_started(folder, config, config_file)
    except (ConnectorTaxError, OSError) as error:
        fault = str(error)
    state = maker.state
    return View(
        campaign=folder.root.name,
        standing=found,
        fault=fault,
        making=_making(maker),
        failed=state.failed,
        can_ask=maker.when != "never",
        report="" if state.latest is None else str(state.latest.number),
        now=f"{now:%Y-%m-%d %H:%M:%S}",
        age="" if state.latest is None else f", the report is of {_age(state.latest, now)} before",
    )


def _age(report: Report, now: datetime) -> str:
    return duration_text(max((now - report.read).total_seconds(), 0.0))


def _making(maker: Maker) -> tuple[str, ...]:
    if maker.when == "never":
        return ("No report is made here (--report never).",)
    latest = maker.state.latest
    lines = [_doing(maker)]
    if latest is not None:
        lines.append(
            f"The report below is of {latest.cells} cells, read by {latest.read:%H:%M:%S} UTC. Making it took "
            f"{latest.cpu_s:.1f} s of CPU time and {duration_text(latest.took_s)} in all."
        )
    return tuple(lines)


def _doing(maker: Maker) -> str:
    doing, most = maker.state.doing, f"at most one in {duration_text(maker.every_s)}"
    only = "" if maker.during_cells else " and only between cells"
    if doing == "waiting":
        return f"A report will be made as soon as it may: {most}{only}."
    if doing == "stopped":
        return "A report is being made. It has stopped until the cell that is measured now has ended."
    cost = (
        "The cells that are measured meanwhile are disturbed (--during-cells)."
        if maker.during_cells
        else "It takes cores that are idle, and stops while a cell is measured."
    )
    if doing == "making":
        return f"A report is being made. {cost}"
    when = "when it is asked for" if maker.when == "on-request" else "when a cell or a run has ended"
    return f"A report is made {when}, {most}. Making it uses CPU time of the host that measures. {cost}"


def page_html(view: View, token: str) -> str:
    """The whole page.

    Args:
        token: that the page's button sends back.
    """
    return (
        _environment()
        .get_template("watch.html.j2")
        .render(view=view, token=token, css=_css(), script=_script(), refresh_s=REFRESH_S)
    )


def live_html(view: View) -> str:
    return _environment().get_template("live.html.j2").render(view=view, refresh_s=REFRESH_S)


def page_policy() -> str:
    """What a browser lets the page do: its own style and script, and to ask this server."""
    return (
        f"default-src 'none'; style-src '{_digest(_css())}'; script-src '{_digest(_script())}'; connect-src 'self'; "
        "frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


# Our own files, the only texts that are not escaped.
def _css() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in STYLES)


def _script() -> str:
    return SCRIPT.read_text(encoding="utf-8")


# The page is made anew every few seconds, and compiling its templates takes longest.
@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_said,
    )


def _said(value: Any) -> Any:
    """Texts without secrets and on one line; escaping follows."""
    return (
        published_text(printable(value))
        if isinstance(value, str) and not isinstance(value, Markup)
        else value
    )
