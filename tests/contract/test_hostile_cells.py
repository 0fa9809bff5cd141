"""Some 290 hostile values in cells: nothing is executed, nothing outside ``results/`` is read or written, a cell costs itself.

Cells are damaged together, each in its own way, and read in one pass: so each of them also shows that it does not harm the others.
"""

import json
import shutil
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.artifacts.layout import CampaignFolder, CellFolder
from connector_tax.base.artifacts.receipts import write_receipt
from connector_tax.base.files import write_json
from connector_tax.base.plan import cells_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from builders import DATE, IDENTITY, Campaign, campaign_config, reseal
from hostile import COMMANDS, DOCUMENTS, IRREGULAR, KINDS, PATHS, Watch, put, watched
from invented_server import Behaviour
from read_through import Result, read

SECRET = "the secret of somebody who never asked for it"
TEXTS = {**COMMANDS, **PATHS}

# --- Cells: one campaign, a damage per cell, one pass.

Damage = Callable[[CellFolder, Path], None]


def _document(change: Callable[[dict[str, Any]], Any]) -> Damage:
    def damage(cell: CellFolder, outside: Path) -> None:
        value = json.loads(cell.cell_json.read_text())
        change(value)
        cell.cell_json.write_text(json.dumps(value))

    return damage


def _key(place: str, value: Any) -> Damage:
    """``value`` at ``a.b`` of cell.json."""

    def change(document: dict[str, Any]) -> None:
        *way, last = place.split(".")
        for name in way:
            document = document[name]
        document[last] = deepcopy(value)

    return _document(change)


def _bytes(content: bytes) -> Damage:
    return lambda cell, outside: cell.cell_json.write_bytes(content) and None


def _line(stream: str, key: str, value: Any) -> Damage:
    """``value`` under ``key`` of a line in the middle of a stream, with checksums that agree."""

    def damage(cell: CellFolder, outside: Path) -> None:
        path: Path = getattr(cell, stream)
        lines = path.read_text().split("\n")
        k = next(k for k, line in enumerate(lines) if k > 1 and '"kind":"worker_step"' not in line)
        lines[k] = json.dumps({**json.loads(lines[k]), key: value})
        path.write_text("\n".join(lines))
        reseal(cell)

    return damage


def _raw_line(stream: str, text: str) -> Damage:
    def damage(cell: CellFolder, outside: Path) -> None:
        path: Path = getattr(cell, stream)
        first, rest = path.read_text().split("\n", 1)
        path.write_bytes(
            f"{first}\n".encode() + text.encode("utf-8", "surrogatepass") + b"\n" + rest.encode()
        )
        reseal(cell)

    return damage


def _irregular(stream: str, kind: str) -> Damage:
    return lambda cell, outside: put(getattr(cell, stream), kind, outside)


def _listed(name: str) -> Damage:
    return _document(lambda d: d["files"].update({name: {"bytes": 1, "sha256": "0"}}))


CELL_KEYS = (
    *(
        "window",
        "window.t0_ns",
        "window.window_start_ns",
        "clock.utc_ns",
        "spec",
        "spec.rate_per_s",
        "spec.seed",
    ),
    *(
        "verdict",
        "reasons",
        "flags",
        "files",
        "engine.versions",
        "engine.gpu",
        "code",
        "cpu",
        "health",
        "launch",
        "attempt",
    ),
    *("prefix_cache_hits_delta", "cache", "connector"),
)
TEXT_KEYS = ("verdict", "campaign", "cell_id")
# Whether the cell must be lost; others may also be read for what they are.
CELLS: dict[str, tuple[Damage, bool]] = {
    **{f"cell.json: {name}": (_bytes(content), True) for name, content in DOCUMENTS.items()},
    **{
        f"{stream}: {kind}": (_irregular(stream, kind), True)
        for stream in ("cell_json", "requests", "metrics", "engine_step")
        for kind in IRREGULAR
    },
    **{f"listed: {name}": (_listed(value), True) for name, value in PATHS.items() if name != "half a pair"},
    **{
        f"{place}: {name}": (_key(place, value), False)
        for k, place in enumerate(CELL_KEYS)
        # Every other kind at every other place: each pair of neighbours sees all of them.
        for i, (name, value) in enumerate(KINDS.items())
        if (i + k) % 2
    },
    **{f"{place}: {name}": (_key(place, value), True) for place in TEXT_KEYS for name, value in COMMANDS.items() if len(name) % 2},
    **{f"reasons: {name}": (_key("reasons", [value]), False) for name, value in COMMANDS.items()},
    **{
        f"requests {key}: {name}": (_line("requests", key, value), False)
        for k, key in enumerate(("t_sched_ns", "prompt_tokens", "status", "session"))
        for i, (name, value) in enumerate(KINDS.items())
        if (i + k) % 2
    },
    **{
        f"metrics {key}: {name}": (_line("metrics", key, value), False)
        for k, key in enumerate(("t_ns", "values", "host"))
        for i, (name, value) in enumerate(KINDS.items())
        if (i + k) % 2
    },
    **{
        f"steps {key}: {name}": (_line("engine_step", key, value), False)
        for k, key in enumerate(("t_ns", "step_duration_us", "decode_tokens", "hooks"))
        for i, (name, value) in enumerate(KINDS.items())
        if (i + k) % 2
    },
    **{f"{s}: a deep line": (_raw_line(s, "[" * 200_000), s != "metrics") for s in ("requests", "metrics", "engine_step")},
    **{f"{s}: half a pair": (_raw_line(s, '{"a": "\ud800"}'), s != "metrics") for s in ("requests", "metrics", "engine_step")},
    "reasons: half a pair": (_key("reasons", ["\ud800"]), True),
    "steps: a line without an end": (_raw_line("engine_step", '{"a": "' + "x" * 9_000_000), True),
    "metrics: infinite in a sum": (_line("metrics", "values", {"num_requests_waiting": 1.7e308}), True),
}  # fmt: skip
UNDAMAGED = 2


@dataclass
class Damaged:
    """One campaign whose cells were damaged, and what was made of it."""

    campaign: Campaign
    place: dict[str, str]
    sound: Result
    found: Result
    watch: Watch


def _rate(k: int) -> float:
    return round(2 + k / 128, 7)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    around = tmp_path_factory.mktemp("around")
    (around / "secret").write_text(SECRET)
    sections: dict[str, Any] = {
        "campaign": "demo",
        "connectors": ["plain", "noop_connector"],
        "phase_a": {"rates_per_s": [_rate(k) for k in range(len(CELLS) + UNDAMAGED)], "input_tokens": 256, "output_tokens": 16},
        "phase_b": {"input_tokens": [256], "output_tokens": [16]},
        "phase_b_prime": {"configs": [], "shapes": []},
        "cell": {"warmup_s": 1, "duration_s": 2, "min_completed": 6, "max_cell_s": 4},
        "analysis": {"bootstrap_draws": 200},
    }  # fmt: skip
    plain = Behaviour(noise=0.05)
    behaviours = {"plain": plain, "noop_connector": plain.taxed(0.1)}
    campaign = Campaign(around / "results" / "demo", campaign_config(**sections), behaviours, max_steps=5)
    for connector in behaviours:
        specs = cells_of(campaign.config, connector, "a")
        for spec in specs if connector == "noop_connector" else specs[:UNDAMAGED]:
            campaign.cell(connector, spec)
        campaign.receipt(connector, "a")
    folders = campaign.run("noop_connector", "a")
    cells = [folders.cell(spec.cell_id) for spec in cells_of(campaign.config, "noop_connector", "a")]
    # What cannot be otherwise in a campaign without damage is asked of the two first cells alone.
    few = around / "few" / "demo"
    shutil.copytree(
        campaign.root, few, ignore=shutil.ignore_patterns(*(c.cell_id for c in cells[UNDAMAGED:]))
    )
    ids = [c.cell_id for c in cells[:UNDAMAGED]]
    receipt_of(CampaignFolder(few), "noop_connector", ids)
    draw_nothing(few)
    sound = read(few, draw=False)
    for (damage, _), cell in zip(CELLS.values(), cells[UNDAMAGED:], strict=True):
        damage(cell, around / "secret")
    folders.receipt.unlink()
    draw_nothing(campaign.root)
    with watched(around, around / "results") as watch:
        found = read(campaign.root, draw=False)
    place = {name: cell.cell_id for name, cell in zip(CELLS, cells[UNDAMAGED:], strict=True)}
    return Damaged(campaign, place, sound, found, watch)


def receipt_of(folder: CampaignFolder, connector: str, ids: list[str]) -> None:
    write_receipt(
        folder.run(DATE, connector, "a"), campaign="demo", status="measured", cell_ids=ids, step_timing_available=True, engine=IDENTITY
    )  # fmt: skip


def draw_nothing(root: Path) -> None:
    write_json(root / "figures" / "index.json", {"schema": 1, "figures": []})


@pytest.mark.parametrize("name", CELLS)
def test_a_hostile_cell_costs_itself_at_most(damaged: Damaged, name: str) -> None:
    """It is named with a reason of one printable line, or was read for what it is."""
    cell_id = damaged.place[name]
    where = f"{DATE}_noop_connector/phase_a/cells/{cell_id}"
    usable = damaged.found.cells().get(("noop_connector", "a", cell_id), {"usable": False})["usable"]
    said = [what for w, what in damaged.found.problems if w.startswith(where)]
    verdict = json_or_none(damaged.campaign.root / where / "cell.json", "verdict")
    assert usable or said or verdict != "valid", damaged.found.problems
    assert not usable or not CELLS[name][1]
    assert all(what.isprintable() and len(what) < 2100 for what in said)


def json_or_none(path: Path, key: str) -> Any:
    """Of a regular file that is JSON."""
    try:
        return json.loads(path.read_text())[key] if path.is_file() else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def test_hostile_cells_touch_no_other(damaged: Damaged) -> None:
    """Plain's, and those of the same configuration that nobody touched."""
    own = [f"r{_rate(k):g}_256x16" for k in range(UNDAMAGED)]
    cells, before = damaged.found.cells(), damaged.sound.cells()
    for key in [(c, "a", cell_id) for c in ("plain", "noop_connector") for cell_id in own]:
        assert cells[key]["usable"]
        # Cells of one rate and shape tell together how long their blocks are, and no other has theirs.
        assert cells[key] == before[key]
    assert {t for t in damaged.sound.taxes() if t[0] == "noop_connector"}


def test_hostile_cells_open_nothing_beside_the_results_and_start_nothing(damaged: Damaged) -> None:
    assert damaged.watch.opened == []
    assert damaged.watch.started == []
    written = damaged.campaign.root / "report.html", damaged.campaign.root / "aggregate.json"
    for text in (path.read_text() for path in written):
        assert SECRET not in text
    page = written[0].read_text()
    assert page.count("<script") - page.count('<script type="application/json">') == 1
    assert "\x1b" not in damaged.found.manifest
