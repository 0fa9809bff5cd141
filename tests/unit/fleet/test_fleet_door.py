"""``connector-tax fleet``: what it writes, and what it says of a study that cannot be."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.commands.fleet import COMMAND
from connector_tax.fleet.simulation import METRICS
from connector_tax.fleet.study import load_study

PATTERN = {"name": "p", "input_tokens": 64, "output_tokens": 8}
GIVEN = {**PATTERN, "slo_s": 2.0, "profile": {"rate_per_s": 4.0, "e2e_s": 0.5}}
SMALL: dict[str, Any] = {
    "instances": [1, 2],
    "patterns": [GIVEN],
    "loads": [0.5, 1.5],
    "policies": [
        {"router": "random_push", "queue": "fifo"},
        {"router": "binpack_pull", "queue": "by_pattern"},
    ],
    "warmup_s": 5,
    "duration_s": 60,
    "days": 2,
}


def study_file(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}))
    return path


def simulate(study: Path, to: Path) -> None:
    COMMAND.call(["--processes", "1", "--fleet", str(study), "--to", str(to)])


def test_given_profiles_give_all_files_and_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    simulate(study_file(tmp_path), out)
    value = json.loads((out / "fleet.json").read_text())
    assert (value["schema_version"], value["campaign"], value["engines"], value["taxes"]) == (1, None, [], [])
    [profile] = value["profiles"]
    assert [profile[k]["point"] for k in ("rate_per_s", "e2e_s", "capacity")] == [4.0, 0.5, 2.0]
    assert len(value["fleets"]) == 2 * 2 * 2
    overloaded = [r for r in value["fleets"] if r["load"] == 1.5]
    assert not any(r["keeps_up"] for r in overloaded)
    assert all(r["keeps_up"] for r in value["fleets"] if r["load"] == 0.5)
    with open(out / "fleet.csv") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(value["fleets"]) * len(METRICS)
    assert {r["metric"] for r in rows} == set(METRICS)
    for name in ("fleet.svg", "fleet.png"):
        assert (out / name).stat().st_size > 1000
    said = capsys.readouterr().out
    assert "does not keep up" in said and "binpack_pull  by_pattern" in said


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instances": [0]}, "instances[0]: 0 is not allowed; wanted: `int` >= 1"),
        ({"load": [1]}, "unknown key 'load'; did you mean 'loads'? Allowed: seed, instances"),
        ({"patterns": [GIVEN, GIVEN]}, "patterns[1]: stands there already"),
        (
            {"patterns": [{**GIVEN, "slo_s": 20}]},
            "duration_s: 60 is shorter than five times the longest slo_s (100 s",
        ),
        (
            {"policies": [{"router": "nearest", "queue": "fifo"}]},
            "policies[0].router: 'nearest' is not allowed; wanted: one of random_push",
        ),
    ],
)
def test_a_bad_study_is_one_message(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_study(study_file(tmp_path, **changes))
    assert message in str(found.value)


def test_a_pattern_that_hardly_ever_comes_is_no_number_and_no_crash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = study_file(tmp_path, patterns=[GIVEN, {**GIVEN, "name": "rare", "weight": 1e-6}])
    simulate(path, tmp_path / "out")
    value = json.loads((tmp_path / "out" / "fleet.json").read_text())
    assert {r["violations_by_pattern"]["rare"] for r in value["fleets"]} == {None}
    path = study_file(tmp_path, loads=[1e-6])
    simulate(path, tmp_path / "none")
    assert "no request" in capsys.readouterr().out


def test_a_profile_that_misses_its_own_slo_is_refused(tmp_path: Path) -> None:
    path = study_file(tmp_path, patterns=[{**GIVEN, "slo_s": 0.4}])
    with pytest.raises(ConfigError, match=r"'p' takes 0\.5 s by its profile, and its slo_s is 0\.4"):
        simulate(path, tmp_path / "out")


@pytest.mark.parametrize("name", sorted(p.name for p in (PROJECT_ROOT / "config").glob("fleet*.yaml")))
def test_shipped_studies_are_valid(name: str) -> None:
    assert load_study(PROJECT_ROOT / "config" / name).patterns
