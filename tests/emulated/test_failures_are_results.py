"""Configurations that never launch, die or refuse: the campaign ends well, complete, and with every reason named."""

import json
from pathlib import Path
from typing import Any

import pytest
from checkout import Project

pytestmark = pytest.mark.emulated

FAULTY = """
never_launches:
  label: never launches
  kv_transfer_config: {kv_connector: NoOpConnector, kv_role: kv_both}
  env: {CONNECTOR_TAX_FAULT: "die_at_start,spare_preflight"}
dies_in_every_third_cell:
  label: dies in every third cell
  kv_transfer_config: {kv_connector: NoOpConnector, kv_role: kv_both}
  env: {CONNECTOR_TAX_FAULT: "die_on_output:12,spare_preflight"}
serves_500:
  label: serves HTTP 500
  kv_transfer_config: {kv_connector: NoOpConnector, kv_role: kv_both}
  env: {CONNECTOR_TAX_FAULT: "http500:1,spare_preflight"}
"""
FAULTY_IDS = ("never_launches", "dies_in_every_third_cell", "serves_500")


def with_faulty_connectors(project: Project) -> None:
    connectors = project.root / "config" / "connectors.yaml"
    connectors.write_text(connectors.read_text() + FAULTY)


def short_campaign(config: dict[str, Any], *others: str) -> None:
    config["connectors"] = ["plain", *others]
    config["phase_a"]["rates_per_s"] = [4, 8]
    # The last of each three shapes is the one that kills.
    config["phase_b"] = {"input_tokens": [64], "output_tokens": [4, 8, 12]}
    config["phase_b_prime"] = {}
    config["accuracy"] = {"prompts": 1}
    config["engine"]["stop_grace_s"] = 1
    config["cell"].update(duration_s=1.0, max_cell_s=2.4, min_completed=6)


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def receipt(project: Project, connector: str, phase: str) -> dict[str, Any]:
    found: dict[str, Any] = read(next(project.results.glob(f"*_{connector}/phase_{phase}/receipt.json")))
    return found


def test_failing_configurations_end_as_results_and_the_campaign_well(project: Project) -> None:
    """Exit code 0, a complete report, and a reason for each number that is missing; with the environment of a batch system, which
    names a card. Without one it is what the other tests of this file see."""
    with_faulty_connectors(project)
    project.configure(lambda config: short_campaign(config, *FAULTY_IDS))
    project.environment["CUDA_VISIBLE_DEVICES"] = "GPU-8a7c1f2e-0000-0000-0000-000000000000"
    done = project.snakemake()
    assert done.returncode == 0, done.stderr[-4000:]

    never = receipt(project, "never_launches", "a")
    assert (never["status"], never["cells"]) == ("failed", [])
    cause = "RuntimeError: this engine was told to die at start"
    assert never["reason"].startswith("did not launch in 2 tries in a row: ") and cause in never["reason"]
    not_again = receipt(project, "never_launches", "b")
    assert not_again["status"] == "skipped"
    assert not_again["reason"] == f"failed in phase A: {never['reason']}"
    assert not list(project.results.glob("*_never_launches/phase_b/vllm_stderr.log"))

    third = receipt(project, "dies_in_every_third_cell", "b")
    assert third["status"] == "measured"
    # The launch in which the last cell was lost could not answer the accuracy pass; another one did.
    answered = read(next(project.results.glob("*_dies_in_every_third_cell/phase_b/accuracy.json")))
    assert all("token_ids" in output for output in answered["outputs"])
    died = [[r for r in c["reasons"] if r.startswith("engine died: ")] for c in third["cells"]]
    assert died == [[], [], ["engine died: RuntimeError: 12 tokens kill this engine (on demand)"]]

    rates = read(project.results / "reference_rates.json")
    assert sorted(rates["participating"]) == ["dies_in_every_third_cell", "plain"]
    aggregate = read(project.results / "aggregate.json")
    states = {i: (c["status"], c["reason"]) for i, c in aggregate["configs"].items()}
    assert states["plain"] == ("measured", None)
    assert states["never_launches"] == (
        "failed",
        {"code": "phase_failed", "subject": "a", "detail": never["reason"]},
    )
    assert states["dies_in_every_third_cell"][0] == "partial"
    assert states["serves_500"][0] == "failed" and "HTTP 500" in states["serves_500"][1]["because"]["detail"]
    assert {c["number"]: c["outcome"] for c in aggregate["criteria"]}[6] == "met"
    page = (project.results / "report.html").read_text()
    for reason in ("told to die at start", "12 tokens kill this engine", "this request was to fail"):
        assert reason in page, reason
    manifest = (project.results / "MANIFEST.tsv").read_text()
    assert any(
        "\tnever_launches\tfailed\tdid not launch in 2 tries" in line for line in manifest.splitlines()
    )
    assert "Nothing to be done" in project.snakemake().stderr


def test_plain_that_fails_stops_everything_and_a_later_start_goes_on(project: Project) -> None:
    """One message, an exit code, nothing measured lost; then the same command measures all of it. Another configuration that fails stops
    nothing; mended and asked for, it is measured in Phase A and in those after it. What makes both fail is no part of a launch's
    specification, as a driver is not."""
    project.configure(lambda config: short_campaign(config, "mooncake_both", "nixl_both"))
    assert project.snakemake("preflight").returncode == 0
    engine = "src/connector_tax/run/emulator/__main__.py"
    begin, sound = "def main() -> None:\n", (project.root / engine).read_text()
    nixl = '    if "NixlConnector" in str(sys.argv):\n        raise RuntimeError("NIXL finds no agent")\n'
    plain = (
        '    if "--kv-transfer-config" not in str(sys.argv):\n        raise RuntimeError("plain is ill")\n'
    )
    project.replace(engine, (begin, begin + nixl + plain))
    stopped = project.snakemake("phase_a")
    assert stopped.returncode != 0
    # Once, at the end of all that Snakemake says of it.
    said, _, at_the_end = stopped.stderr.partition("Why it ended:\n")
    assert "plain cannot be measured in phase A" not in said
    assert at_the_end.count("error: plain cannot be measured in phase A") == 1
    assert "RuntimeError: plain is ill" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert not list(project.results.glob("*_plain/phase_a/receipt.json"))
    # Jobs after it were not even begun.
    order = read(project.results / "campaign.json")["order"]["a"]
    later = order[order.index("plain") + 1 :]
    assert not [c for c in later if list(project.results.glob(f"*_{c}/phase_a/*"))]
    before = project.cells()

    project.replace(engine, (plain, ""))
    failed = project.snakemake("phase_b")
    assert failed.returncode == 0, failed.stderr[-3000:]
    first = receipt(project, "nixl_both", "a")
    assert first["status"] == "failed" and "RuntimeError: NIXL finds no agent" in first["reason"]
    path = next(project.results.glob("*_nixl_both/phase_a/receipt.json"))
    assert f"to have it tried again, remove {path.relative_to(project.root)} and start again" in failed.stderr
    after = project.cells()
    assert {k: after[k] for k in before} == before

    (project.root / engine).write_text(sound)
    path.unlink()
    again = project.snakemake("phase_b")
    assert again.returncode == 0, again.stderr[-3000:]
    measured = {p: receipt(project, "nixl_both", p)["status"] for p in ("a", "b")}
    assert measured == {"a": "measured", "b": "measured"}
    assert after.items() <= project.cells().items()
