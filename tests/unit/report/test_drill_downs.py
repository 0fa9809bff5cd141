"""Drill-downs on the page: what is drawn is what the raw files hold, and what cannot be drawn is said."""

import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
import itertools

from builders import DATE, Campaign
from drilled_campaign import HOSTILE, Opened, measured, opened
from read_through import Result, read

from connector_tax.base.artifacts.thinning import RULE, thin
from connector_tax.base.documents.aggregate import read_aggregate
from connector_tax.base.files import read_json, write_json
from connector_tax.base.records.cell import CellWindow
from connector_tax.read.ingest import read_campaign
from connector_tax.read.report.drill.facts import THINNED
from connector_tax.read.report.drill.panels import PARTS
from connector_tax.read.report.drill.view import DrillDowns, read_drilling
from connector_tax.read.report.page import MOST_PAGE_BYTES, build_report, fitting, render
from connector_tax.read.report.view import cells_in_order, page_view
from connector_tax.read.stats.aggregate import aggregate

CELL = "plain vLLM, rates, 4/s, 256 × 16"
FOLDER = f"{DATE}_plain/phase_a/cells/r4_256x16"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Campaign, Result]:
    campaign = measured(tmp_path_factory.mktemp("drilled") / "c")
    return campaign, read(campaign.root)


@pytest.fixture
def copied(whole: tuple[Campaign, Result], tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole[0].root, tmp_path / "c"))


def written(root: Path) -> str:
    return (root / "report.html").read_text()


def page_of(root: Path) -> str:
    return build_report(root).read_text()


def cell_of(page: str) -> Opened:
    return opened(page)[CELL]


def test_every_cell_that_was_measured_can_be_opened_from_its_row(whole: tuple[Campaign, Result]) -> None:
    page = written(whole[0].root)
    found = opened(page)
    assert len(found) == len(whole[1].aggregate["cells"]) == 6
    for one in found.values():
        assert page.count(f'<a href="#{one.anchor}"') == 1 and page.count(f'id="{one.anchor}"') == 1


def test_what_is_drawn_of_requests_is_what_their_records_say(whole: tuple[Campaign, Result]) -> None:
    """Few of them: each is there, at its intended send time, and each that failed is a mark."""
    found = cell_of(written(whole[0].root))
    cell = next(
        c for c in read_campaign(whole[0].root).cells() if c.cell_id == "r4_256x16" and c.config == "plain"
    )
    ok = [r for r in cell.requests if r.status == "ok"]
    assert 0 < len(ok) < len(cell.requests) <= 2 * PARTS[0]
    for key, value in (("ttft", "ttft_ns"), ("e2e", "e2e_ns"), ("tpot", "tpot_ns")):
        dots, *marks = found.panels[key]
        values = [getattr(r, value) / 1e6 for r in ok]
        assert dots.values == pytest.approx(values, abs=max(values) / 900)
        end = (cell.window.drained_ns - cell.window.t0_ns) / 1e9
        assert dots.at == pytest.approx(
            [(r.t_sched_ns - cell.window.t0_ns) / 1e9 for r in ok], abs=end / 3900
        )
        shown = [(m.name, len(m.at)) for m in marks]
        assert shown == ([("http error", len(cell.requests) - len(ok))] if key == "ttft" else [])


def test_what_is_drawn_of_steps_has_their_extremes_and_says_of_how_many(
    whole: tuple[Campaign, Result],
) -> None:
    found = cell_of(written(whole[0].root))
    cell = next(
        c for c in read_campaign(whole[0].root).cells() if c.cell_id == "r4_256x16" and c.config == "plain"
    )
    assert cell.steps is not None
    steps = cell.steps.load()
    dots, median = found.panels["steps"]
    ms = steps.step_duration_us / 1e3
    assert max(dots.values) == pytest.approx(ms.max(), abs=ms.max() / 900)
    assert min(dots.values) == pytest.approx(ms.min(), abs=ms.max() / 900)
    assert len(dots.at) < steps.n and f"{len(dots.at):,} of {steps.n:,} (Step duration)" in found.text
    assert min(dots.at) >= (cell.window.window_start_ns - cell.window.t0_ns) / 1e9 - 0.1
    assert (
        len(median.at) <= PARTS[0] and min(ms) <= min(median.values) <= max(median.values) <= max(ms) * 1.001
    )


def test_the_host_is_drawn_as_samples_say_and_what_never_changes_is_told(
    whole: tuple[Campaign, Result],
) -> None:
    found = cell_of(written(whole[0].root))
    said = {(key, s.name): s.values for key, panel in found.panels.items() for s in panel}
    assert {key for key, _ in said} == {"ttft", "e2e", "tpot", "steps", "steal", "work", "clocks", "heat"}
    assert "Requests in the engine: running 1, waiting 0 requests" in found.text
    stolen, work = said["steal", "stolen"], said["work", "work"]
    # One to three of 400 ticks.
    assert sorted({round(4 * v) / 4 for v in stolen}) == [0.25, 0.5, 0.75] and len(stolen) == len(work) - 1
    assert sorted({round(2 * v) / 2 for v in work}) == [205, 205.5, 206, 206.5]
    assert said["clocks", "CPU"] == pytest.approx([3050] * 2, abs=4), "a level line needs its ends alone"
    assert sorted({round(v / 2) for v in said["heat", "W"]}) == [200, 201, 202, 203]
    assert {"°C", "W"} == {name for key, name in said if key == "heat"}
    assert re.search(r"GPU clocks held down: </script>.* in 5\d % of samples", found.text)
    assert "Not recorded" not in found.text


def test_hooks_failures_flags_and_launch_are_told(whole: tuple[Campaign, Result]) -> None:
    found = opened(written(whole[0].root))
    plain, own = found[CELL], found[CELL.replace("plain vLLM", "no-op connector")]
    assert "No hook was recorded" in plain.text and plain.launched == ""
    # 50 µs of a step of 9.45 ms.
    assert f"worker/{HOSTILE.replace(chr(0x202E), ' ')} 0.5" in own.text and " 50 1 Means of" in own.text
    assert "client and engine share cores" in own.text
    assert own.launched.startswith('{"kv_connector": "NoOpConnector"'), (
        "once for all cells of a configuration"
    )
    assert "http error" in own.text and "HTTP 500: </script>" in own.text


def test_the_page_is_the_same_each_time_and_holds_one_script(whole: tuple[Campaign, Result]) -> None:
    assert page_of(whole[0].root) == written(whole[0].root)
    assert written(whole[0].root).count("<script") == 1 and "<img src=x" not in written(whole[0].root)


def test_without_raw_results_the_page_says_what_opening_needs(
    copied: Path, whole: tuple[Campaign, Result]
) -> None:
    for folder in copied.glob("????-??-??_*"):
        shutil.rmtree(folder)
    page = page_of(copied)
    assert opened(page) == {} and "<th>Drill-down</th>" not in page
    assert "their raw results do not lie beside aggregate.json" in page
    (copied / "campaign.json").unlink()
    assert "The raw results cannot be read, so no cell can be opened: campaign.json" in page_of(copied)


def test_a_thinned_campaign_says_what_was_kept_and_which_cells_lost_their_steps(
    whole: tuple[Campaign, Result], tmp_path: Path
) -> None:
    root = tmp_path / "c"
    published = Campaign(tmp_path / "whole", max_steps=60)
    published.measure_everything()
    thin(published.root, root)
    data = read_campaign(root)
    order = cells_in_order(aggregate(data))
    drills = read_drilling(root, order).at(PARTS[-1], len(order))
    page = render(page_view(aggregate(data), None), [], drills)
    assert f"What was kept: {RULE}." in page
    found = opened(page)
    kept = [key for key, one in found.items() if THINNED not in one.text]
    assert 0 < len(kept) < len(found) == len(order)
    for key, one in found.items():
        assert ("steps" in one.panels) == (key in kept), "where steps are drawn, none were left out"
        assert "No step records" not in one.text
    assert "thinned" not in written(whole[0].root)


def test_a_cell_that_is_lost_leaves_the_others(copied: Path) -> None:
    shutil.rmtree(copied / FOLDER)
    page = page_of(copied)
    assert len(opened(page)) == 5 and CELL not in opened(page)
    assert "The raw results of 1 of 6 cells are not here" in page


@pytest.mark.parametrize("stream", ["requests", "metrics", "engine_step"])
@pytest.mark.parametrize("how", ["torn", "garbage", "gone", "empty"])
def test_a_damaged_cell_is_drawn_as_far_as_it_can_be_read_and_says_so(
    copied: Path, stream: str, how: str
) -> None:
    (path,) = (copied / FOLDER).glob(f"{stream}_*")
    content = path.read_bytes()
    {
        "torn": lambda: path.write_bytes(content[: len(content) // 2]),
        "garbage": lambda: path.write_bytes(bytes(range(256)) * 50),
        "gone": path.unlink,
        "empty": lambda: path.write_bytes(b""),
    }[how]()
    read(copied, draw=False)
    found = opened(written(copied))
    cell = found.get(f"{CELL}, left out") or found[CELL]
    assert "left out" in cell.text and path.name in cell.text
    assert len(opened(written(copied))) == 6
    if stream != "metrics" and how == "torn":
        assert "work" in cell.panels


def test_raw_results_that_are_others_than_those_analysed_are_named(copied: Path) -> None:
    value = read_json(copied / "aggregate.json")
    cell = next(c for c in value["cells"] if c["cell_id"] == "r4_256x16" and c["config"] == "plain")
    cell["n_ok"] -= 1
    write_json(copied / "aggregate.json", value)
    assert "it was not made of these" in cell_of(page_of(copied)).text


def test_drawings_become_coarser_until_all_fit_and_then_the_last_go_without(
    whole: tuple[Campaign, Result],
) -> None:
    root = whole[0].root
    order = cells_in_order(read_aggregate(root / "aggregate.json"))
    drilling = read_drilling(root, order)
    sizes = [drilling.drawn_bytes(parts, 6) for parts in PARTS]
    assert all(a > b for a, b in itertools.pairwise(sizes)) and drilling.drawn_bytes(15, 2) < sizes[-1]
    made = page_view(read_aggregate(root / "aggregate.json"), None)
    tried: list[DrillDowns] = []

    def rendered(drills: DrillDowns) -> str:
        tried.append(drills)
        return render(made, [], drills)

    without = len(rendered(drilling.at(15, 0)).encode())
    before = (PARTS[0] + 1, 7)
    for most in (10**7, *range(without + 110_000, without, -5_000)):
        tried.clear()
        page = fitting(drilling, rendered, most)
        assert len(page.encode()) <= most
        now = (tried[-1].parts, len(opened(page)))
        assert now[0] <= before[0] and now[1] <= before[1] and (now[1] == 6 or now[0] == PARTS[-1])
        if now[1] < 6:
            assert f"no room for the drill-downs of the last {6 - now[1]} cells" in page
        before = now
    assert before == (PARTS[-1], 0) and len(tried) <= 6


def test_a_cell_without_length_is_drawn() -> None:
    """Whoever writes results may write any times."""
    from connector_tax.read.report.drill.cells import times_of

    found = times_of(CellWindow(5, 5, 5, 5, True))
    assert (found.window_start, found.window_end) == (0, 0) and found.end > 0


def test_the_page_keeps_room_for_what_comes_after(whole: tuple[Campaign, Result]) -> None:
    assert len(written(whole[0].root).encode()) < MOST_PAGE_BYTES < 5_000_000
