"""``python tests/soak/simulated_day.py --hours 24 --faults 40 --seed 1``: a day in virtual time, with faults in what it left on disk.

A campaign of blocks is rehearsed until its cells take ``--hours`` of virtual time, and analysed. Then faults are drawn from the seed, each as it
leaves the disk: an engine that died in a cell, a cell whose rename was lost, a raw file that is truncated, edited or gone, a receipt
that is torn or gone, a run that was cut short, a cell of another host. The analysis of the day with faults must name every hit, and every
cell that was not hit must have the very numbers of the undisturbed day, to the last bit.

Only what cells tell one another may differ: ends of intervals under the load of a lost cell, which are made with a block length that all
cells of a load have in common, and whether a configuration is saturated, where cells of that configuration were hit. Not run by CI.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from builders import campaign_config, reseal
from read_through import but_for_ends

from connector_tax.base.artifacts.layout import CampaignFolder, CellFolder, RunFolder
from connector_tax.base.artifacts.receipts import read_receipt, write_receipt
from connector_tax.base.config import CampaignConfig
from connector_tax.base.files import read_json, write_json
from connector_tax.read.analysis import analyse
from connector_tax.run.rehearsal.campaign import rehearse

Rows = dict[tuple[str, ...], dict[str, Any]]
TOLD = ("saturated", "saturation_criteria")


def day(hours: float) -> CampaignConfig:
    """Long cells of few requests, so that a day of them is simulated in minutes; as many blocks as fill it."""
    cell_s = 600
    sections: dict[str, Any] = {
        "connectors": ["plain", "noop_connector", "mooncake_both", "nixl_both"],
        "phase_a": {"rates_per_s": [0.25, 0.5], "input_tokens": 256, "output_tokens": 16},
        "phase_b": {"input_tokens": [64, 256], "output_tokens": [8]},
        "phase_b_prime": {"configs": ["plain"], "shapes": [[64, 8]]},
        "cell": {"warmup_s": 10, "duration_s": cell_s, "min_completed": 60, "max_cell_s": 2 * cell_s},
        "accuracy": {"prompts": 1},
        "analysis": {"bootstrap_draws": 200},
    }
    # Two rates and two shapes of four configurations, then five launches a block of 100 requests each.
    blocks = max(0, round((hours * 3600 - 16 * (cell_s + 10)) / (5 * (100 / 0.5 + 10))))
    return campaign_config("demo.yaml", **sections, repeats=blocks, repeat_requests=100)


@dataclass(frozen=True)
class Hit:
    """One fault: where it is, and the code, or a word of it, that the analysis has to give."""

    run: str
    cell: str | None
    what: str
    said: str

    @property
    def where(self) -> str:
        return self.run if self.cell is None else f"{self.run}/cells/{self.cell}"


def _died(run: RunFolder, cell: CellFolder) -> str:
    document = read_json(cell.cell_json)
    write_json(
        cell.cell_json, {**document, "verdict": "invalid", "reasons": ["engine died: killed by SIGKILL"]}
    )
    _receipt_again(run)
    return "engine died"


def _lost(run: RunFolder, cell: CellFolder) -> str:
    shutil.rmtree(cell.path)
    return "cell_gone"


def _truncated(run: RunFolder, cell: CellFolder) -> str:
    content = cell.requests.read_bytes()
    cell.requests.write_bytes(content[: len(content) // 2])
    return "file_changed"


def _edited(run: RunFolder, cell: CellFolder) -> str:
    text = cell.requests.read_text()
    cell.requests.write_text(text.replace('"status":"ok"', '"status":"fine"', 1))
    reseal(cell)
    _receipt_again(run)
    return "line_no_request"


def _gone(run: RunFolder, cell: CellFolder) -> str:
    cell.metrics.unlink()
    return "file_missing"


def _elsewhere(run: RunFolder, cell: CellFolder) -> str:
    document = read_json(cell.cell_json)
    document["engine"]["host"] = {**document["engine"]["host"], "cpu": "of another host"}
    write_json(cell.cell_json, document)
    _receipt_again(run)
    return "not_comparable"


def _receipt_again(run: RunFolder) -> None:
    receipt = read_receipt(run)
    write_receipt(
        run,
        campaign=receipt.campaign,
        status="measured",
        cell_ids=[c.cell_id for c in run.finished_cells()],
        step_timing_available=receipt.step_timing_available,
        engine=receipt.engine,
    )


OF_A_CELL: dict[str, Callable[[RunFolder, CellFolder], str]] = {
    "engine died in it": _died,
    "lost": _lost,
    "truncated": _truncated,
    "edited": _edited,
    "file gone": _gone,
    "of another host": _elsewhere,
}


def torn_receipt(run: RunFolder) -> str:
    content = run.receipt.read_bytes()
    run.receipt.write_bytes(content[: len(content) // 2])
    return "unreadable"


def strike(folder: CampaignFolder, faults: int, rng: random.Random) -> list[Hit]:
    """So many faults, no two in one run."""
    runs = [r for r in folder.runs() if r.finished_cells()]
    hits = []
    struck = sorted(rng.sample(runs, faults), key=lambda r: r.path)
    without_plain = {r.phase for r in struck if r.connector_id == "plain"}
    for run in struck:
        where = run.path.relative_to(folder.root).as_posix()
        # Plain of another host would take every cell with it that is compared with it, and without plain's nothing is.
        kinds = [
            k
            for k in (*OF_A_CELL, "receipt torn")
            if run.phase not in without_plain or k != "of another host"
        ]
        what = rng.choice(kinds)
        if what == "receipt torn":
            hits.append(Hit(where, None, what, torn_receipt(run)))
            continue
        cell = rng.choice(run.finished_cells())
        hits.append(Hit(where, cell.cell_id, what, OF_A_CELL[what](run, cell)))
    return hits


def aggregated(root: Path) -> dict[str, Any]:
    analyse(root)
    found: dict[str, Any] = json.loads((root / "aggregate.json").read_text())
    return found


def cells_of(aggregate: dict[str, Any], hits: list[Hit]) -> Rows:
    """Without those that were hit, and without what a hit cell tells others of its configuration."""
    struck = {(h.run[11:].split("/phase_")[0], h.run.split("/phase_")[1], h.cell) for h in hits}
    told = {config for config, _, cell in struck if cell is not None}
    return {
        (c["config"], c["phase"], c["cell_id"]): {
            k: v for k, v in c.items() if k not in TOLD or c["config"] not in told
        }
        for c in aggregate["cells"]
        if (c["config"], c["phase"], c["cell_id"]) not in struck
    }


def unnamed(aggregate: dict[str, Any], hits: list[Hit]) -> list[Hit]:
    """Hits that neither a problem nor the reasons of an invalid cell tell of."""
    told = [str(p) for p in aggregate["problems"]]
    told += [
        f"{hit.run}/cells/{hit.cell} {c['reasons']}"
        for hit in hits
        for c in aggregate["cells"]
        if (c["config"], c["phase"], c["cell_id"])
        == (hit.run[11:].split("/")[0], hit.run.split("/phase_")[1], hit.cell)
        and c["reasons"]
    ]
    return [h for h in hits if not any(h.run in t and h.said in t and (h.cell or "") in t for t in told)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--faults", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="simulated-day-") as temporary:
        root, times = rehearse(day(args.hours), Path(temporary), seed=args.seed)
        simulated_h = sum(t.cells_s for t in times) / 3600
        sound = aggregated(root)
        hits = strike(CampaignFolder(root), args.faults, random.Random(args.seed))
        struck = aggregated(root)
        lost = {h.cell for h in hits if h.cell is not None}
        before, after = (but_for_ends(cells_of(a, hits), *lost) for a in (sound, struck))
    for hit in hits:
        print(f"{hit.where}: {hit.what}: {hit.said}")
    missing = unnamed(struck, hits)
    for hit in missing:
        print(f"not named by the analysis: {hit}")
    changed = sorted(k for k in {*before, *after} if before.get(k) != after.get(k))
    for key in changed:
        print(f"was not hit and changed: {' '.join(key)}")
    print(
        f"{simulated_h:.1f} simulated hours, {len(sound['cells'])} cells, {len(hits)} hits (seed {args.seed}): {len(hits) - len(missing)} named; "
        f"{len(before) - len(changed)} of {len(before)} cells that were not hit are bit-identical ({time.monotonic() - begun:.0f} s)"
    )
    return 1 if missing or changed else 0


if __name__ == "__main__":
    sys.exit(main())
