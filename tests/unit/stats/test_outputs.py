"""A connector that changes what the engine answers is named, whatever its latencies are."""

from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import load_campaign
from connector_tax.base.documents.aggregate import FirstDifference
from connector_tax.read.ingest import CampaignData
from connector_tax.read.ingest.campaign import RunData
from connector_tax.read.stats.outputs import compare_outputs
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.outputs import collect_outputs

CONFIG = Path(__file__).parents[3] / "config"


def ids(*answers: list[int]) -> list[dict[str, Any]]:
    return [{"token_ids": a} for a in answers]


def campaign(**outputs: Any) -> CampaignData:
    """``plain_a=[...]``: what a configuration answered in a phase."""
    runs = []
    for name, answers in outputs.items():
        config, _, phase = name.rpartition("_")
        folder = CampaignFolder(Path("r")).run("2026-01-01", config, phase)  # type: ignore[arg-type]
        runs.append(RunData(folder, None, (), answers))
    return CampaignData(Path("r"), {}, {}, None, None, None, None, tuple(runs), ())


GOOD = ids([1, 2, 3], [4, 5, 6], [7, 8, 9])


def verdicts(data: CampaignData) -> dict[tuple[str, str], str]:
    return {(r.config, r.phase): r.verdict for r in compare_outputs(data)}


def test_equal_answers_are_the_same() -> None:
    rows = compare_outputs(campaign(plain_a=GOOD, plain_b=GOOD, nixl_a=GOOD))
    assert [r.verdict for r in rows] == ["reference", "same", "same"]


def test_one_other_token_is_found_and_placed() -> None:
    wrong = ids([1, 2, 3], [4, 5, 0], [7, 8, 9])
    rows = compare_outputs(campaign(plain_a=GOOD, plain_b=GOOD, nixl_a=wrong))
    assert rows[2].n_same == 2
    assert rows[2].first_difference == FirstDifference(prompt=1, token=2)


def test_where_plain_differs_from_itself_nobody_is_blamed() -> None:
    """But a connector that differs on a prompt that plain repeats is."""
    again = ids([1, 2, 3], [4, 5, 99], [7, 8, 9])
    other = ids([1, 2, 3], [4, 50, 6], [7, 8, 9])
    bad = ids([0, 2, 3], [4, 50, 6], [7, 8, 9])
    data = campaign(plain_a=GOOD, plain_b=again, nixl_a=other, lmcache_a=bad)
    assert verdicts(data) == {
        ("plain", "a"): "reference",
        ("plain", "b"): "not repeatable",
        ("nixl", "a"): "not repeatable",
        ("lmcache", "a"): "differs",
    }


def test_plains_second_launch_in_a_block_is_plain() -> None:
    again = ids([1, 2, 3], [4, 5, 99], [7, 8, 9])
    data = campaign(plain_a=GOOD, plain_again_a=again, nixl_a=again)
    assert verdicts(data) == {
        ("plain", "a"): "reference",
        ("plain_again", "a"): "not repeatable",
        ("nixl", "a"): "not repeatable",
    }


def test_a_prompt_without_an_answer_is_a_failure_not_a_difference() -> None:
    failed = [*GOOD[:2], {"error": "ReadTimeout: "}]
    rows = compare_outputs(campaign(plain_a=GOOD, nixl_a=failed))
    assert (rows[1].verdict, rows[1].n_failed) == ("failed", 1)


def test_texts_are_compared_where_a_server_gives_no_ids() -> None:
    rows = compare_outputs(campaign(plain_a=[{"text": "a"}], nixl_a=[{"text": "b"}]))
    assert (rows[1].verdict, rows[1].first_difference) == ("differs", FirstDifference(prompt=0, token=None))


def test_without_plain_there_is_nothing_to_compare_with() -> None:
    assert compare_outputs(campaign(nixl_a=GOOD)) == []


@pytest.mark.parametrize(("fault", "different"), [(None, 0), ("wrong:3", 1)])
def test_an_engine_is_asked_the_same_and_caught_when_it_answers_otherwise(
    tmp_path: Path, fault: str | None, different: int
) -> None:
    campaign = load_campaign(CONFIG / "demo.yaml")
    answers = []
    for name, with_fault in (("plain", None), ("other", fault)):
        request = LaunchRequest(
            campaign.engine, campaign.connector("plain"), tmp_path / name, fault=with_fault
        )
        with running_engine(request) as engine:
            engine.wait_ready()
            answers.append(
                collect_outputs(
                    engine.base_url,
                    engine.model,
                    seed=1,
                    prompts=4,
                    input_tokens=16,
                    output_tokens=5,
                    token_ids=(10, 99),
                )
            )
    assert all(len(a["token_ids"]) == 5 for a in answers[0])
    assert len({str(a) for a in answers[0]}) == 4, "other prompts, other answers"
    assert sum(a != b for a, b in zip(*answers, strict=True)) == different
