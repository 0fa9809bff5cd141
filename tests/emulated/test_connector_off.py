"""A connector that is off in a measured launch has no tax there: whenever it goes off, with or without words, alone or in a stack."""

import json
from typing import Any

import pytest
import yaml
from checkout import Project

LMCACHE = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
STACK = {
    "kv_connector": "MultiConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {
        "connectors": [{"kv_connector": "NixlConnector", "kv_role": "kv_both"}, LMCACHE]
    },
}
# id -> its connector and what happens to it.
ENTRIES: dict[str, tuple[dict[str, Any], str]] = {
    "healthy": (LMCACHE, ""),
    "healthy_stack": (STACK, ""),
    "says_so": (LMCACHE, "degraded,spare_preflight"),
    "silent_jobs": (LMCACHE, "off_after:1,spare_preflight"),
    "in_one_phase": (LMCACHE, "off_after:1,off_says:going to bed,only_in:phase_b"),
    "one_child": (STACK, "off_after:1,off_child:1,off_says:good night,spare_preflight"),
    "one_child_without_counters": (STACK, "off_after:1,off_child:0,spare_preflight"),
}


@pytest.fixture(scope="module")
def aggregate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    project = Project(tmp_path_factory.mktemp("off") / "project")
    # The embedded engine adds to its counters at once, and its cells here are short.
    project.replace(
        "src/connector_tax/read/ingest/connector_on.py", ("\nMOST_LATE_S = ", "\nMOST_LATE_S = 0 * ")
    )
    entries = {
        i: {
            "label": i,
            "kv_transfer_config": connector,
            "verify": "long_prompt",
            "env": {"CONNECTOR_TAX_FAULT": fault},
        }
        for i, (connector, fault) in ENTRIES.items()
    }
    connectors = project.root / "config" / "connectors.yaml"
    connectors.write_text(connectors.read_text() + "\n" + yaml.safe_dump(entries))

    def use(config: dict[str, Any]) -> None:
        config["connectors"] = ["plain", *ENTRIES]
        config["phase_a"]["rates_per_s"] = [20]
        config["phase_b"] = {"input_tokens": [256], "output_tokens": [8]}
        config["phase_b_prime"] = {}
        config["accuracy"] = {"prompts": 1}

    project.configure(use)
    done = project.snakemake("analysis", "phase_b")
    assert done.returncode == 0, done.stderr[-3000:]
    value: dict[str, Any] = json.loads((project.results / "aggregate.json").read_text())
    return value


def codes(aggregate: dict[str, Any], config: str, phase: str) -> set[str]:
    """Kinds of evidence in a configuration's cells of one phase."""
    reasons = [
        r for c in aggregate["cells"] if (c["config"], c["phase"]) == (config, phase) for r in c["reasons"]
    ]
    return {r["code"] for r in reasons}


@pytest.mark.parametrize(
    ("config", "evidence"),
    [
        ("says_so", {"off_log", "off_counter"}),
        ("silent_jobs", {"off_counter", "off_hooks_idle"}),
        ("one_child", {"off_counter", "off_hooks_idle"}),
        ("one_child_without_counters", {"off_hooks_idle"}),
    ],
)
def test_a_connector_that_goes_off_after_preflight_is_not_measured(
    aggregate: dict[str, Any], config: str, evidence: set[str]
) -> None:
    assert codes(aggregate, config, "a") == codes(aggregate, config, "b") == evidence
    assert aggregate["configs"][config]["status"] == "failed"
    assert aggregate["configs"][config]["reason"]["because"]["code"] in evidence
    assert not [t for t in aggregate["main_taxes"] if t["config"] == config and t["point"] is not None]


def test_only_the_phase_in_which_it_was_off_is_left_out(aggregate: dict[str, Any]) -> None:
    assert codes(aggregate, "in_one_phase", "a") == set()
    assert codes(aggregate, "in_one_phase", "b") == {"off_counter", "off_hooks_idle"}
    state = aggregate["configs"]["in_one_phase"]
    assert state["status"] == "partial" and state["reason"]["because"]["code"] == "off_counter"


def test_the_child_that_is_off_is_named(aggregate: dict[str, Any]) -> None:
    reasons = {c["config"]: c["reasons"] for c in aggregate["cells"] if c["phase"] == "a"}
    assert any("lmcache:num_lookup_requests_total" in r["subject"] for r in reasons["one_child"])
    assert any("1:LMCacheConnectorV1" in r["subject"] for r in reasons["one_child"])
    assert all("0:NixlConnector" in r["subject"] for r in reasons["one_child_without_counters"])


@pytest.mark.parametrize("config", ["plain", "healthy", "healthy_stack"])
def test_connectors_that_are_on_stay(aggregate: dict[str, Any], config: str) -> None:
    assert aggregate["configs"][config]["status"] == "measured"
    assert not any("connector_unproved" in c["flags"] for c in aggregate["cells"] if c["config"] == config)
