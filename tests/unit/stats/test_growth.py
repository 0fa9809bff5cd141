"""Phase D's slopes: what was put into a campaign is found again, and nothing is found where nothing was put in."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from analysed import aggregate_json
from builders import SMALL, Campaign, campaign_config, reseal
from cache_levels import measure_levels
from invented_server import Behaviour
from scipy import stats

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.documents.cell import Cache
from connector_tax.base.files import read_json, write_json
from connector_tax.base.records.cell import Shape
from connector_tax.base.vllm_model.costs import NO_CONNECTOR, load_costs
from connector_tax.base.vllm_model.model import EngineModel
from connector_tax.read.ingest import CellData, read_campaign
from connector_tax.read.stats.growth import before_in_launch, cached_blocks, fit_plane

PER_BLOCK_US, PER_REQUEST_US = 0.081, 3.0
LEVELS = {"cached_tokens": [0, 40_000, 80_000, 120_000], "running": [1, 8, 32], "output_tokens": 32}
CONFIG = campaign_config(
    **{
        **SMALL,
        "connectors": ["plain", "mooncake_both"],
        "phase_b_prime": {"configs": [], "shapes": []},
        "phase_d": LEVELS,
    }
)


def growing(usual: Behaviour, blocks: float, running: int) -> Behaviour:
    """build_connector_meta grows with both, get_finished with nothing, and the step with what the hooks take."""
    build = 20 + PER_BLOCK_US * blocks + PER_REQUEST_US * running
    return replace(usual, hooks_us=(build, 180.0, 10.0), step_us=usual.step_us + build + 190.0)


def measured(root: Path) -> Campaign:
    found = Campaign(root, CONFIG, {"mooncake_both": Behaviour(noise=0.02), "plain": Behaviour(noise=0.02)})
    # A cell is never just where a plane would have it: some 10 us that nothing explains, the same in every run.
    rng = np.random.default_rng(7)
    measure_levels(found, "plain")
    measure_levels(
        found,
        "mooncake_both",
        lambda usual, blocks, running: _disturbed(growing(usual, blocks, running), rng),
    )
    return found


def _disturbed(behaviour: Behaviour, rng: np.random.Generator) -> Behaviour:
    assert behaviour.hooks_us is not None
    build, *others = behaviour.hooks_us
    return replace(behaviour, hooks_us=(build + float(rng.normal(0, 10)), *others))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    value = aggregate_json(read_campaign(measured(tmp_path_factory.mktemp("levels")).root))
    return {entry["config"]: entry for entry in json.loads(json.dumps(value["growth"]))}


def slope(entry: dict[str, Any], quantity: str) -> dict[str, Any]:
    row: dict[str, Any] = next(s for s in entry["slopes"] if s["quantity"] == quantity)
    return row


def test_a_known_slope_lies_inside_its_interval(found: dict[str, dict[str, Any]]) -> None:
    """81 us per 1,000 cached blocks and 3 us per running request; the interval is narrow enough to say so."""
    row = slope(found["mooncake_both"], "build_meta_us")
    assert row["n_cells"] == 12
    for name, truth in (
        ("per_1000_cached_blocks", 1000 * PER_BLOCK_US),
        ("per_running_request", PER_REQUEST_US),
    ):
        assert row[name]["low"] < truth < row[name]["high"]
        assert row[name]["high"] - row[name]["low"] < 0.5 * truth


def test_a_hook_that_does_not_grow_has_an_interval_around_zero(found: dict[str, dict[str, Any]]) -> None:
    flat = slope(found["mooncake_both"], "get_finished_us")["per_1000_cached_blocks"]
    assert flat["low"] <= 0 <= flat["high"]
    assert flat["high"] < 0.1


def test_the_step_is_taken_less_plains_and_plains_own_is_the_control(
    found: dict[str, dict[str, Any]],
) -> None:
    over = slope(found["mooncake_both"], "decode_step_over_plain_us")["per_1000_cached_blocks"]
    assert over["low"] < 1000 * PER_BLOCK_US < over["high"]
    control = slope(found["plain"], "decode_step_us")["per_1000_cached_blocks"]
    assert control["low"] < 0 < control["high"]
    assert [s["quantity"] for s in found["plain"]["slopes"]] == ["decode_step_us"]


def test_each_cell_has_its_taxes_of_medians_and_plain_has_none(found: dict[str, dict[str, Any]]) -> None:
    for cell in found["mooncake_both"]["cells"]:
        assert set(cell["p50_taxes"]) == {"ttft_p50", "tpot_p50"}
        assert cell["p50_taxes"]["ttft_p50"]["low"] < 0 < cell["p50_taxes"]["ttft_p50"]["high"]
    assert all(cell["p50_taxes"] == {} for cell in found["plain"]["cells"])


def with_cache(cell: CellData, **cache: Any) -> CellData:
    """The cell, with a document that tells this of its prefix cache."""
    return replace(cell, document=msgspec.structs.replace(cell.document, cache=Cache(**cache)))


def test_what_a_cell_computes_itself_counts_as_cached_in_whole_blocks(tmp_path: Path) -> None:
    """By hand: requests of 8 + 32 tokens, of which 39 are computed and 2 blocks of 16 are whole.

    Before the cell 1,600 tokens, 320 of them generated by 10 such requests of 40 tokens each: the other 1,200 fill 75 blocks,
    and the ten 20. In the cell two requests are done (2 blocks each), one has come to 8 + 15.5 tokens (1), one has not begun.
    """
    campaign = measured(tmp_path)
    cell = next(c for c in read_campaign(campaign.root).cells() if c.phase == "d")
    cell = replace(cell, spec=replace(cell.spec, input_tokens=8, output_tokens=32))
    request = next(r for r in cell.requests if r.status == "ok")
    middle = (cell.window.window_start_ns + cell.window.t_stop_ns) // 2
    lengths = {"prompt_tokens": 8, "completion_tokens": 32}
    done = replace(request, t_first_token_ns=middle - 200, t_last_token_ns=middle - 100, **lengths)
    half = replace(request, t_first_token_ns=middle - 50, t_last_token_ns=middle + 50, **lengths)
    later = replace(request, t_first_token_ns=middle + 1, t_last_token_ns=middle + 50, **lengths)
    cache = {"computed_tokens": 1600, "block_size": 16, "kv_blocks": 1000}
    cache |= {"counters": {"generation_tokens": 320.0}}
    put = with_cache(replace(cell, requests=[done, done, half, later]), **cache)
    assert cached_blocks(put) == pytest.approx(75 + 20 + 2 + 2 + 1)
    assert cached_blocks(with_cache(put, **{**cache, "kv_blocks": 90})) == 90.0
    for unknown in ("block_size", "computed_tokens"):
        assert cached_blocks(with_cache(put, **{**cache, unknown: None})) is None


def test_an_engine_that_does_not_tell_its_block_size_leaves_no_slope_and_says_why(tmp_path: Path) -> None:
    campaign = measured(tmp_path)
    for folder in campaign.run("mooncake_both", "d").finished_cells():
        document = read_json(folder.cell_json)
        document["cache"]["block_size"] = None
        write_json(folder.cell_json, document)
        reseal(folder)
    campaign.receipt("mooncake_both", "d")
    value = aggregate_json(read_campaign(campaign.root))
    entry = next(e for e in value["growth"] if e["config"] == "mooncake_both")
    told = slope(entry, "build_meta_us")["per_1000_cached_blocks"]
    assert told["point"] is None
    assert told["reason"] == "cache_unknown"


def test_a_document_of_any_number_of_priming_prompts_is_no_list_of_them(tmp_path: Path) -> None:
    campaign = measured(tmp_path)
    cell = next(c for c in read_campaign(campaign.root).cells() if c.phase == "d")
    cache = {"computed_tokens": 1600, "block_size": 16, "prompts": 10**12, "primed_tokens": 10**12}
    assert cached_blocks(with_cache(cell, **cache, longest_prompt=1)) is not None


def test_a_plane_is_what_least_squares_makes_of_it() -> None:
    """Against the textbook's line: slope and standard error of scipy's linregress, the other column held."""
    rng = np.random.default_rng(3)
    x = np.linspace(0, 10, 12)
    y = 5 + 2 * x + rng.normal(0, 1, 12)
    expected = stats.linregress(x, y)
    plane = fit_plane(np.column_stack([x, np.full(12, 8.0)]), y, 0.0)
    assert plane.slopes[0] == pytest.approx(expected.slope)
    assert plane.errors[0] == pytest.approx(expected.stderr)
    assert np.isnan(plane.slopes[1])


def test_cells_that_lie_on_a_plane_by_luck_are_not_believed_beyond_their_resamples() -> None:
    x = np.arange(4.0)
    at = np.column_stack([x, [1.0, 2.0, 1.0, 2.0]])
    assert fit_plane(at, 3 * x, 0.0).errors[0] == pytest.approx(0, abs=1e-9)
    assert fit_plane(at, 3 * x, 4.0).errors[0] > 0.5


def test_the_interval_holds_the_slope_as_often_as_it_says() -> None:
    """1,000 planes through 12 cells: 95 % of t-intervals hold the truth, give or take 2.5 points (3.6 standard errors)."""
    rng = np.random.default_rng(11)
    at = np.array([[b, r] for b in (0, 3, 6, 9) for r in (1, 8, 32)], dtype=np.float64) + rng.uniform(
        0, 2, (12, 2)
    )
    held = 0
    for _ in range(1000):
        plane = fit_plane(at, 20 + at @ [81.0, 3.0] + rng.normal(0, 10, 12), 0.0)
        reach = stats.t.ppf(0.975, plane.freedom) * plane.errors[0]
        held += abs(plane.slopes[0] - 81.0) < reach
    assert 925 <= held <= 975


def primed(model: EngineModel, longest: int, missing: int) -> dict[str, int]:
    """``cache`` of a cell whose prompts were answered by ``model``, as priming sends them."""
    sent: list[int] = []
    while missing > 0:
        sent.append(min(longest, missing))
        model.add(len(sent), sent[-1], 1)
        while model.has_work:
            model.step()
        missing -= sent[-1] + 1
    return {"prompts": len(sent), "primed_tokens": sum(sent), "longest_prompt": longest}


@pytest.mark.parametrize(("longest", "block_size"), [(2048, 528), (511, 128), (2048, 16), (1023, 16)])
def test_blocks_that_priming_prompts_half_filled_are_not_counted(longest: int, block_size: int) -> None:
    """Against the engine's own count, over two cells of one launch; a cell of an earlier launch left nothing in this one."""
    costs, _ = load_costs(PROJECT_ROOT / "config" / "engine_model.yaml", None)
    costs = msgspec.structs.replace(costs, kv_blocks=10**6, block_size=block_size)
    model = EngineModel(costs, NO_CONNECTOR, max_num_batched_tokens=8192, seed=1)
    first = primed(model, longest, 30_000)
    second = primed(model, longest, 30_000)
    both = [first["prompts"] + second["prompts"], first["primed_tokens"] + second["primed_tokens"]]
    told = {
        "block_size": block_size,
        "kv_blocks": 10**6,
        "computed_tokens": sum(both),
        "counters": {"generation_tokens": float(both[0])},
    }

    def cell(start_ns: int, attempt: int, cache: dict[str, Any]) -> Any:
        window = SimpleNamespace(t0_ns=start_ns, window_start_ns=start_ns, t_stop_ns=start_ns + 1)
        shape = SimpleNamespace(shape=Shape(128, 64))
        document = SimpleNamespace(attempt=attempt, cache=Cache(**cache))
        return SimpleNamespace(config="plain", document=document, window=window, spec=shape, requests=[])

    own = cell(30, 2, {**second, **told})
    others = [cell(10, 1, first), cell(20, 2, first), own]
    assert cached_blocks(own, before_in_launch(own, others)) == pytest.approx(model.cached_blocks)
