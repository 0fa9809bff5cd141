"""One tax stands for a configuration at a reference rate, and everything that needs one takes that."""

import shutil
import sys
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.files import read_json, write_json
from connector_tax.read.ingest import read_campaign

sys.path.insert(0, str(Path(__file__).parents[2]))
from analysed import aggregate_json
from builders import SMALL, Campaign, campaign_config, fail
from invented_server import Behaviour

QUICK = {**SMALL, "analysis": {"bootstrap_draws": 200}}
CONFIG = campaign_config(**QUICK)
PLAIN = Behaviour(noise=0.05)
TAXED = {
    "plain": PLAIN,
    "noop_connector": PLAIN.taxed(0.0, hooks_us=(2.0, 1.0, 1.0)),
    "mooncake_both": PLAIN.taxed(0.30),
    "nixl_both": PLAIN.taxed(0.20),
}


def analysed(campaign: Campaign) -> dict[str, Any]:
    return aggregate_json(read_campaign(campaign.root))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    campaign = Campaign(tmp_path_factory.mktemp("whole"), CONFIG, TAXED, max_steps=60)
    campaign.measure_everything()
    return campaign


@pytest.fixture
def copied(whole: Campaign, tmp_path: Path) -> Campaign:
    """The whole campaign, to be damaged."""
    shutil.copytree(whole.root, tmp_path / "copy")
    twin = copy(whole)
    twin.root = tmp_path / "copy"
    return twin


def taxes(value: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    return [t for t in value["taxes"] if all(t[k] == v for k, v in wanted.items())]


def main(value: dict[str, Any], **wanted: Any) -> list[dict[str, Any]]:
    return [t for t in value["main_taxes"] if all(t[k] == v for k, v in wanted.items())]


def hypothesis(value: dict[str, Any], name: str, subject: str) -> dict[str, Any]:
    found: dict[str, Any] = next(h for h in value["hypotheses"] if (h["id"], h["subject"]) == (name, subject))
    return found


def test_amplification_is_the_tax_at_load_less_that_at_safe(tmp_path: Path) -> None:
    """Mooncake saturates between 4 and 8 req/s, plain does not: its tax at 8 is mostly queue."""
    behaviours = {**TAXED, "mooncake_both": Behaviour(130, 13, 0.05, capacity_per_s=7, hooks_us=(1, 1, 1))}
    campaign = Campaign(tmp_path, CONFIG, behaviours)
    rates = campaign.measure_everything()
    assert (rates.ref_safe_per_s, rates.ref_load_per_s, rates.b_prime_needed) == (4, 8, True)
    value = analysed(campaign)
    row = next(
        a for a in value["amplification"] if (a["config"], a["metric"]) == ("mooncake_both", "ttft_p90")
    )
    at = {
        r: taxes(value, config="mooncake_both", metric="ttft_p90", reference=r, phase="a")[0]["point"]
        for r in ("ref_safe", "ref_load")
    }
    assert row["point"] == pytest.approx(at["ref_load"] - at["ref_safe"])
    assert row["low"] > 1
    assert {(t["config"], t["reference"]) for t in taxes(value, phase="b_prime")} == {
        ("mooncake_both", "ref_load")
    }
    # And at the shape that Phase B' measured beside Phase A's.
    of_b = {
        p: taxes(
            value, config="mooncake_both", metric="ttft_p90", phase=p, input_tokens=64, output_tokens=16
        )[0]
        for p in ("b", "b_prime")
    }
    (row,) = (a for a in value["amplification"] if (a["input_tokens"], a["metric"]) == (64, "ttft_p90"))
    assert row["point"] == pytest.approx(of_b["b_prime"]["point"] - of_b["b"]["point"])
    assert (row["config"], row["rate_per_s"], row["safe_rate_per_s"]) == ("mooncake_both", 8, 4)
    # Phase A's cell at ref_safe is lost: Phase B's of the same rate and shape stands in, as it does in the figures.
    campaign.run("mooncake_both", "a").cell("r4_256x16").requests.unlink()
    less = analysed(campaign)
    chosen = main(less, config="mooncake_both", metric="ttft_p90")
    assert {t["reference"]: t["phase"] for t in chosen} == {"neither": "a", "ref_safe": "b", "ref_load": "a"}
    row = next(
        a for a in less["amplification"] if (a["config"], a["metric"]) == ("mooncake_both", "ttft_p90")
    )
    (safe,) = taxes(
        less, config="mooncake_both", metric="ttft_p90", phase="b", input_tokens=256, output_tokens=16
    )
    assert row["point"] == pytest.approx(at["ref_load"] - safe["point"])


def test_what_load_adds_to_a_shape_that_phase_b_has_not_is_not_known(tmp_path: Path) -> None:
    """It was said that both were measured at one rate, and the rate under load stood as the safe one."""
    behaviours = {**TAXED, "mooncake_both": Behaviour(130, 13, 0.05, capacity_per_s=7)}
    campaign = Campaign(tmp_path, CONFIG, behaviours)
    campaign.measure_everything()
    shutil.rmtree(campaign.run("mooncake_both", "b").path)
    found = [a for a in analysed(campaign)["amplification"] if a["input_tokens"] == 64]
    assert found
    assert {(a["reason"], a.get("subject"), a["rate_per_s"], a.get("safe_rate_per_s")) for a in found} == {
        ("no_cell", "phase_b", 8, None)
    }


def test_a_shape_that_phase_b_prime_left_out_is_said(tmp_path: Path) -> None:
    behaviours = {**TAXED, "mooncake_both": Behaviour(130, 13, 0.05, capacity_per_s=7)}
    campaign = Campaign(tmp_path, CONFIG, behaviours)
    campaign.measure_everything()
    rates = read_json(campaign.root / "reference_rates.json")
    rates["load_shapes"]["64x16"]["rate_per_s"] = None
    write_json(campaign.root / "reference_rates.json", {**rates, "b_prime_needed": False})
    for config in ("plain", "mooncake_both"):
        shutil.rmtree(campaign.run(config, "b_prime").path)
    value = analysed(campaign)
    left_out = [a for a in value["amplification"] if a["input_tokens"] == 64]
    assert {(a["config"], a["point"], a["reason"]) for a in left_out} == {("mooncake_both", None, "not_held")}
    assert value["problems"] == []


def test_at_one_reference_rate_nothing_says_what_load_adds(whole: Campaign) -> None:
    """The tax less itself is 0 [0, 0], which reads as if load had been tried."""
    value = analysed(whole)
    rates = value["reference_rates"]
    assert rates["ref_safe_per_s"] == rates["ref_load_per_s"]
    assert value["amplification"]
    for row in value["amplification"]:
        assert (row["point"], row["low"], row["high"]) == (None, None, None)
        assert row["reason"] in ("one_rate", "no_steps")


def test_hypotheses_and_parts_stand_on_the_cell_that_figures_show(copied: Campaign) -> None:
    """Phase A's cell at the reference rate is damaged; Phase B's launch measured the same rate and shape."""
    copied.run("mooncake_both", "a").cell("r8_256x16").requests.unlink()
    value = analysed(copied)
    (tax,) = taxes(
        value, config="mooncake_both", metric="ttft_p90", phase="b", input_tokens=256, output_tokens=16
    )
    (chosen,) = main(value, config="mooncake_both", metric="ttft_p90", reference="ref_safe")
    assert (chosen["phase"], chosen["point"], chosen["low"]) == ("b", tax["point"], tax["low"])
    h1 = hypothesis(value, "H1", "mooncake_both")
    assert h1["outcome"] == "supported"
    assert h1["numbers"]["tax_ttft_p90"]["point"] == tax["point"]
    row = next(
        d for d in value["decomposition"] if (d["config"], d["metric"]) == ("mooncake_both", "ttft_p90")
    )
    assert row["total"]["point"] == tax["point"]
    assert {m["phase"] for m in main(value, config="nixl_both")} == {"a"}


def test_without_a_stand_in_phase_as_reason_is_kept(copied: Campaign) -> None:
    for phase in ("a", "b"):
        copied.run("mooncake_both", phase).cell("r8_256x16").requests.unlink()
    value = analysed(copied)
    (chosen,) = main(value, config="mooncake_both", metric="ttft_p90", reference="ref_safe")
    assert (chosen["phase"], chosen["point"]) == ("a", None)
    (missing,) = hypothesis(value, "H1", "mooncake_both")["missing"]
    assert missing["reason"] == "cell_lost"


@pytest.mark.parametrize("config", ["mooncake_both", "plain"])
def test_no_launch_stands_in_for_one_of_which_requests_failed(copied: Campaign, config: str) -> None:
    """Phase B's is a good one; taking it would leave out what went wrong."""
    copied.measure(config, "a", change=fail(every=7))
    value = analysed(copied)
    (chosen,) = main(value, config="mooncake_both", metric="ttft_p90", reference="ref_safe")
    assert (chosen["phase"], chosen["point"]) == ("a", None)
    assert chosen["reason"] == "requests_failed"
    row = next(r for r in value["connectors"] if r["config"] == "mooncake_both")
    assert row["reason"] == {"code": "requests_failed", "subject": config}


def test_where_a_cell_of_phase_a_is_lost_its_row_is_marked(copied: Campaign) -> None:
    copied.run("plain", "a").cell("r8_256x16").requests.unlink()
    value = analysed(copied)
    assert main(value, config="mooncake_both", metric="ttft_p90", reference="ref_safe")[0]["phase"] == "b"
    row = next(r for r in value["connectors"] if r["config"] == "mooncake_both")
    assert "other_phase" in row["marks"]


def test_taxes_over_blocks_stand_before_those_of_one_launch(tmp_path: Path) -> None:
    """For the hypotheses, amplification and decomposition alike, with the requests of all blocks."""
    behaviours = {**TAXED, "mooncake_both": Behaviour(130, 13, 0.05, capacity_per_s=7, hooks_us=(1, 1, 1))}
    campaign = Campaign(tmp_path, campaign_config(**QUICK, repeats=3), behaviours, max_steps=60)
    campaign.measure_everything()
    value = analysed(campaign)
    for reference in ("ref_safe", "ref_load"):
        entry = next(e for e in value["repeats"] if (e["reference"], e["metric"]) == (reference, "ttft_p90"))
        over = next(t for t in entry["taxes"] if t["config"] == "nixl_both")
        (chosen,) = main(value, config="nixl_both", metric="ttft_p90", reference=reference)
        assert [chosen[k] for k in ("point", "low", "high", "verdict")] == [
            over[k] for k in ("point", "low", "high", "verdict")
        ]
        # Phase A is a block as well, and Phase B one of the rate at which it measures Phase A's shape.
        blocks = ["a", *(["b"] if reference == "ref_safe" else []), "r1", "r2", "r3"]
        assert list(over["by_block"]) == blocks
        assert (chosen["n_blocks"], chosen["phase"]) == (len(blocks), None)

        def requests(*ids: str, blocks: list[str] = blocks, cell_id: str = chosen["cell_id"]) -> int:
            return sum(
                c["n_window"]
                for c in value["cells"]
                if c["config"] in ids and c["phase"] in blocks and c["cell_id"] == cell_id
            )

        assert chosen["n"] == requests("nixl_both")
        assert chosen["n_plain"] == requests("plain", "plain_again")
    points = {t["reference"]: t["point"] for t in main(value, config="nixl_both", metric="ttft_p90")}
    row = next(a for a in value["amplification"] if (a["config"], a["metric"]) == ("nixl_both", "ttft_p90"))
    assert row["point"] == pytest.approx(points["ref_load"] - points["ref_safe"])
    assert row["n_blocks"] == 4  # ref_safe has five
    part = next(d for d in value["decomposition"] if (d["config"], d["metric"]) == ("nixl_both", "ttft_p90"))
    assert part["total"]["point"] == pytest.approx(points["ref_safe"])
    (step,) = main(value, config="nixl_both", metric="step_p50_us", reference="ref_safe")
    assert (step["n_blocks"], step["phase"]) == (1, "a")
