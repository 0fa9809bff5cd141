"""The golden campaigns: what each is, and how its raw results come about. ``make_campaigns.py`` writes what is made of them."""

import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from builders import Campaign
from builders import fail as failing_requests
from cache_levels import measure_levels
from invented_server import Behaviour

from . import campaign_adapters as product

CONFIGS = Path(__file__).parent / "configs"
PUBLISHED = product.PROJECT_ROOT / "published"
FLEETS = product.PROJECT_ROOT / "config"
PLAIN = Behaviour(noise=0.05)
# What a document and a table are called in ``data/``.
Made = dict[str, tuple[Any, str]]


def aggregate_of(root: Path) -> Made:
    aggregate, table = product.analysed(root)
    return {"aggregate": (aggregate, table)}


# --- Rehearsed


def rehearsed(folder: Path) -> Made:
    """A campaign in virtual time, with all phases that are simulated and two blocks of launches."""
    config = product.campaign_config(product.read_yaml(CONFIGS / "rehearsed.yaml"))
    return aggregate_of(product.rehearsed(config, folder, launches=4))


# --- Made: an invented server's answers, in the pipeline's own files


def made_config(**sections: Any) -> Any:
    """``made.yaml`` with some of its keys replaced; mappings are merged one level deep."""
    mapping = product.read_yaml(CONFIGS / "made.yaml")
    for name, change in sections.items():
        mapping[name] = {**mapping.get(name, {}), **change} if isinstance(change, dict) else change
    return product.campaign_config(mapping)


def saturated(folder: Path) -> Made:
    """Plain saturates at the highest rate and Mooncake, with its stack, at the middle one; what recording costs is asked."""
    config = made_config(
        connectors=["plain", "noop_connector", "mooncake_both", "lmcache_only", "multi_mooncake_lmcache"],
        observer_effect=True,
    )
    behaviours = {
        "plain": replace(PLAIN, capacity_per_s=5.0),
        "plain unrecorded": replace(PLAIN, ttft_ms=98.0, tpot_ms=9.8, capacity_per_s=5.0),
        "noop_connector": replace(PLAIN.taxed(0.02, (1.0, 3.0, 1.0)), capacity_per_s=5.0),
        "mooncake_both": replace(PLAIN.taxed(0.40, (60.0, 200.0, 40.0)), capacity_per_s=3.0),
        "lmcache_only": replace(PLAIN.taxed(0.10, (50.0, 20.0, 50.0)), capacity_per_s=5.0),
        "multi_mooncake_lmcache": replace(PLAIN.taxed(0.52, (113.0, 223.0, 92.0)), capacity_per_s=3.0),
    }
    campaign = Campaign(folder / "made-saturated", config, behaviours, max_steps=120)
    campaign.measure_everything()
    return aggregate_of(campaign.root)


CAUSE = "did not launch in 2 tries in a row: OSError: libibverbs.so.1"


def failed(folder: Path) -> Made:
    """Mooncake fails in Phase B behind one cell, NIXL from the beginning, LMCache is skipped; one cell is torn, and one lacks a file."""
    config = made_config(connectors=["plain", "noop_connector", "mooncake_both", "nixl_both", "lmcache_only"])
    behaviours = {
        "plain": PLAIN,
        "noop_connector": PLAIN.taxed(0.03),
        "mooncake_both": PLAIN.taxed(0.30),
        "nixl_both": PLAIN.taxed(0.20),
    }
    campaign = Campaign(folder / "made-failed", config, behaviours, max_steps=120)
    campaign.skip("lmcache_only", "LMCache is not installed")
    campaign.measure_everything()
    _fail(campaign, "nixl_both", "a")
    _fail(campaign, "nixl_both", "b", status="skipped")
    _fail(campaign, "mooncake_both", "b", keep=1)
    noop = campaign.run("noop_connector", "b").finished_cells()
    noop[0].requests.write_bytes(noop[0].requests.read_bytes()[:-200])
    noop[1].metrics.unlink()
    return aggregate_of(campaign.root)


def _fail(
    campaign: Campaign, connector: str, phase: product.Phase, *, keep: int = 0, status: str = "failed"
) -> None:
    product.fail(campaign.run(connector, phase), campaign.config.campaign, CAUSE, keep=keep, status=status)


BLOCKS = ("a", "b", "r1", "r2", "r3")


class _Blocks(Campaign):
    """Each block is slower than the one before, as the host's work says, and in one of them one in seven requests of Mooncake's fails."""

    def cell(self, connector: str, spec: Any, **more: Any) -> Any:
        if (connector, spec.phase) == ("mooncake_both", "r1"):
            more["change"] = failing_requests(every=7)
        usual = self.behaviours[connector]
        slow = 1 + 0.02 * BLOCKS.index(spec.phase) + (0.03 if connector == "plain_again" else 0.0)
        self.host = lambda t_ns, begin_ns: _host(t_ns, begin_ns, slow)
        self.behaviours[connector] = replace(
            usual, ttft_ms=usual.ttft_ms * slow, tpot_ms=usual.tpot_ms * slow, step_us=usual.step_us * slow
        )
        try:
            return super().cell(connector, spec, **more)
        finally:
            self.behaviours[connector] = usual


def _host(t_ns: int, begin_ns: int, slow: float) -> dict[str, Any]:
    second = (t_ns - begin_ns) // 10**9 + 100
    return {
        "cpu_ticks": second * 400,
        "steal_ticks": second,
        "cpu_mhz": [round(3000 - 1000 * (slow - 1)), 3100],
        "cpu_work_us": [round(210 * slow, 3), round(212 * slow + second % 3, 3)],
    }


def blocks(folder: Path) -> Made:
    """Five blocks of launches with plain twice, on a host that slows down; one block of Mooncake's has requests that failed."""
    config = made_config(
        connectors=["plain", "mooncake_both", "nixl_both"],
        phase_b_prime={"configs": [], "shapes": []},
        repeats=3,
    )
    behaviours = {
        "plain": PLAIN,
        "plain_again": PLAIN,
        "mooncake_both": PLAIN.taxed(0.30),
        "nixl_both": PLAIN.taxed(0.20),
    }
    campaign = _Blocks(folder / "made-blocks", config, behaviours, max_steps=60)
    campaign.measure_everything()
    return aggregate_of(campaign.root)


def levels(folder: Path) -> Made:
    """Phase D: a hook whose time grows with the prefix cache and with the requests that run."""
    config = made_config(
        connectors=["plain", "mooncake_both"],
        phase_b_prime={"configs": [], "shapes": []},
        phase_d={"cached_tokens": [0, 40_000, 80_000], "running": [1, 8], "output_tokens": 32},
    )
    campaign = Campaign(
        folder / "made-levels", config, {"plain": PLAIN, "mooncake_both": PLAIN}, max_steps=120
    )
    measure_levels(campaign, "plain")
    measure_levels(campaign, "mooncake_both", _growing)
    return aggregate_of(campaign.root)


def _growing(usual: Behaviour, cached_blocks: float, running: int) -> Behaviour:
    build_us = 20 + 0.081 * cached_blocks + 3.0 * running + cached_blocks % 7
    return replace(usual, hooks_us=(build_us, 180.0, 10.0), step_us=usual.step_us + build_us + 190.0)


# --- Published


def published(folder: Path) -> Made:
    """The newest campaign of ``published/``, analysed from its raw results."""
    product.unpack(newest_bundle(), folder)
    (root,) = (folder / "results").iterdir()
    return aggregate_of(root)


def newest_bundle() -> Path:
    """That whose campaign began last; a checkout tells no times of files."""
    bundles = sorted(PUBLISHED.glob("*.tar.xz"))
    return bundles[0] if len(bundles) == 1 else max(bundles, key=lambda path: (_date(path), path.name))


def _date(bundle: Path) -> str:
    with tarfile.open(bundle) as archive:
        places = [name.split("/") for name in archive.getnames() if name.startswith("results/")]
    return max((parts[2][:10] for parts in places if len(parts) > 3), default="")


# --- Fleets

# The shipped studies take 20 days, which is a minute and a half: two have every setting, too, with an interval.
DAYS = 2


def proposed_fleets(folder: Path) -> Made:
    """The studies of the routing proposal: patterns with given profiles, every router and queue."""
    made = {}
    for path in sorted(FLEETS.glob("fleet_proposal*.yaml")):
        study = folder / path.name
        study.write_text(yaml.safe_dump({**product.read_yaml(path), "days": DAYS}))
        made[path.stem] = product.simulated_fleet(study)
    return made


CAMPAIGNS: dict[str, Callable[[Path], Made]] = {
    "rehearsed": rehearsed,
    "saturated": saturated,
    "failed": failed,
    "blocks": blocks,
    "levels": levels,
    "published": published,
    "fleets": proposed_fleets,
}
