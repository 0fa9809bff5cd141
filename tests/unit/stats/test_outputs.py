"""A connector that changes what the engine answers is named, whatever its latencies are."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import load_campaign
from connector_tax.base.documents.aggregate import FirstDifference
from connector_tax.read.ingest import CampaignData
from connector_tax.read.ingest.campaign import RunData
from connector_tax.read.stats.outputs import compare_outputs
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.loadgen.cell import collect_outputs
from connector_tax.run.measure.checks import ask

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


def test_a_prompt_that_plain_did_not_answer_makes_nobody_differ() -> None:
    """Whoever differs loses all its taxes, and so did everybody by one lost answer of plain."""
    data = campaign(plain_a=[{"error": "HTTP 500"}, *GOOD[1:]], nixl_a=GOOD)
    assert verdicts(data) == {("plain", "a"): "reference", ("nixl", "a"): "failed"}
    assert compare_outputs(data)[1].n_same == 2


ABORTED = b'{"choices":[{"text":"a","token_ids":[1],"finish_reason":"abort"}],"usage":{"prompt_tokens":4,"completion_tokens":1}}'


class Aborting(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(ABORTED)))
        self.end_headers()
        self.wfile.write(ABORTED)

    def log_message(self, format: str, *args: object) -> None: ...


def test_an_answer_that_the_server_broke_off_is_a_failure() -> None:
    """It passed for one with other tokens, and its connector for one that computes something else; preflight took it for an answer."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Aborting) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        (found,) = collect_outputs(
            url, "m", seed=1, prompts=1, input_tokens=4, output_tokens=4, token_ids=(10, 99)
        )
        engine: Any = SimpleNamespace(base_url=url, model="m", headers={})
        tried = ask(engine, load_campaign(CONFIG / "demo.yaml"), 4, output_tokens=4, timeout_s=5)
        server.shutdown()
    assert "abort" in found["error"]
    assert tried.fault is not None and "abort" in tried.fault


def test_texts_are_compared_where_a_server_gives_no_ids() -> None:
    rows = compare_outputs(campaign(plain_a=[{"text": "a"}], nixl_a=[{"text": "b"}]))
    assert (rows[1].verdict, rows[1].first_difference) == ("differs", FirstDifference(prompt=0, token=None))


def test_without_plain_there_is_nothing_to_compare_with() -> None:
    assert compare_outputs(campaign(nixl_a=GOOD)) == []


def test_an_engine_is_asked_the_same_and_caught_when_it_answers_otherwise(tmp_path: Path) -> None:
    campaign = load_campaign(CONFIG / "demo.yaml")
    answers = []
    for name, with_fault in (("plain", None), ("other", "wrong:3")):
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
    assert sum(a != b for a, b in zip(*answers, strict=True)) == 1, "the others are the same"
