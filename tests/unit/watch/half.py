"""A campaign that is half measured, and the page of it with all that it needs."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from builders import SMALL, Campaign, campaign_config

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.read.watch.making import Maker, When
from connector_tax.read.watch.page import View, view_of

FILE = Path("config/mine.yaml")
NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
HOSTILE = (
    '</script><script>document.title="taken"</script><img src=x onerror=\'document.title="taken"\'>\u202etxet'
)
SECRET = "hf_" + "aBcD1234" * 4


def campaign(root: Path, **changes: object) -> Campaign:
    """Of two configurations and few requests."""
    small = {
        **SMALL,
        "connectors": ["plain", "mooncake_both"],
        "phase_a": {"rates_per_s": [2, 4], "input_tokens": 256, "output_tokens": 16},
        "analysis": {"bootstrap_draws": 200},
    }
    config = campaign_config(**{**small, **changes})
    return Campaign(root / config.campaign, config, max_steps=40)


def half(root: Path) -> Campaign:
    """Phase A of plain has ended, that of Mooncake has its cells and no receipt."""
    found = campaign(root)
    found.measure("plain")
    found.measure("mooncake_both", receipt=False)
    return found


def hostile(root: Path) -> Campaign:
    """What files of a campaign may say, in every text that the page shows."""
    found = half(root)
    found.skip("mooncake_both", f"{HOSTILE} {SECRET}")
    folder = found.folder
    folder.progress_log.parent.mkdir(exist_ok=True)
    folder.progress_log.write_text(f"first\n{HOSTILE * 100} {SECRET}\n", encoding="utf-8")
    return found


def maker(found: Campaign, made_in: Path, when: When = "on-request", **options: object) -> Maker:
    made_in.mkdir(exist_ok=True)
    return Maker(CampaignFolder(found.root, made_in), when, 0.0, **options)  # type: ignore[arg-type]


def view(found: Campaign, of: Maker) -> View:
    return view_of(found.folder, found.config, FILE, of, NOW)


def viewing(found: Campaign, of: Maker) -> Callable[[], View]:
    return lambda: view(found, of)


def listing(root: Path) -> list[tuple[str, int, int, int]]:
    """Everything in a folder, with what a write, a rename or a link to it would change."""
    return sorted(
        (str(p), s.st_mtime_ns, s.st_ctime_ns, s.st_size)
        for p in [root, *root.rglob("*")]
        if (s := p.lstat())
    )
