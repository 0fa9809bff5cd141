"""A campaign whose cells have content to show: failing requests, a busy host, hooks, texts with markup."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
from builders import Campaign, campaign_config
from invented_server import Behaviour, step_lines
from read_through import SECTIONS

from connector_tax.base.records.cell import CellWindow
from connector_tax.base.records.request import RequestRecord

HOSTILE = (
    '</script><script>document.title="taken"</script><img src=x onerror=\'document.title="taken"\'>\u202etxet'
)
ERROR = f"HTTP 500: {HOSTILE}"


def measured(root: Path, **sections: Any) -> Campaign:
    """Measure two configurations at three rates; texts of servers and hosts are hostile where possible."""
    config = campaign_config(
        **{
            **SECTIONS,
            "connectors": ["plain", "noop_connector"],
            "phase_b_prime": {"configs": ["plain"], "shapes": [[64, 16]]},
            **sections,
        }
    )
    behaviours = {"plain": Behaviour(noise=0.05), "noop_connector": Behaviour(noise=0.05).taxed(0.05)}
    campaign = Campaign(root, config, behaviours, max_steps=900, host=_host, step_lines=_named_hooks)
    campaign.measure("plain", change=_failing)
    campaign.measure("noop_connector", change=_failing, flags=["cores_shared", HOSTILE])
    return campaign


def _failing(requests: list[RequestRecord]) -> list[RequestRecord]:
    """Let every seventh request fail, with a server's hostile text."""
    return [
        replace(r, status="http_error", t_first_token_ns=None, t_last_token_ns=None, error=ERROR)
        if r.seq % 7 == 3
        else r
        for r in requests
    ]


def _host(t_ns: int, begin_ns: int) -> dict[str, Any]:
    second = (t_ns - begin_ns) // 10**9 + 100
    stolen = sum(1 + k % 3 for k in range(second))
    gpu = {
        "sm_mhz": 1980.0 - second % 3,
        "mem_mhz": 2619.0,
        "temperature_c": 50.0 + second % 5,
        "power_w": 400.0 + second % 7,
        "clock_reasons": [HOSTILE] if second % 2 else [],
    }
    return {
        "cpu_ticks": second * 400,
        "steal_ticks": stolen,
        "cpu_mhz": [3000, 3100],
        "cpu_work_us": [200.0, 210.0 + second % 4],
        "gpu": gpu,
    }


def _named_hooks(
    window: CellWindow, behaviour: Behaviour, rng: np.random.Generator, most: int
) -> Iterable[str]:
    """Name one worker hook in the header, with markup, and give its time in each row."""
    name = json.dumps([HOSTILE])
    for line in step_lines(window, behaviour, rng, most):
        if '"process":"worker"' in line and '"kind":"header"' in line:
            yield f'{line[:-1]},"hooks":{name}}}'
        elif '"kind":"worker_step"' in line:
            yield f'{line[:-1]},"hooks":[50000,1]}}'
        else:
            yield line


@dataclass(frozen=True)
class Opened:
    """A drill-down of a page, read back.

    Attributes:
        text: without its data.
        launched: the connector's launch options, from the nearest line above it.
    """

    anchor: str
    text: str
    data: dict[str, Any]
    launched: str


def opened(page: str) -> dict[str, Opened]:
    """Return the drill-downs by configuration and summary."""
    found = {}
    for config in page.split('<details class="more config">')[1:]:
        label = unescape(_between(config, "<summary>", "</summary>"))
        above, *cells = config.split('<details class="cell" ')
        for cell in cells:
            launched = re.findall(r"Launched with <code>(.*?)</code>", above)
            above = cell.partition("</details>")[2] if "Launched with" in cell else above
            body = cell.partition("</details>")[0]
            data = json.loads(_between(body, '<script type="application/json">', "</script>"))
            text = re.sub(r"<script.*?</script>", " ", body.partition("</summary>")[2], flags=re.DOTALL)
            found[f"{label}, {unescape(_between(body, '<summary>', '</summary>'))}"] = Opened(
                _between(body, 'id="', '"'),
                " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split()),
                data,
                unescape(launched[-1]) if launched else "",
            )
    return found


def _between(text: str, begin: str, end: str) -> str:
    return text.partition(begin)[2].partition(end)[0]
