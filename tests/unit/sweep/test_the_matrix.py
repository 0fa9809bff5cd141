"""A sweep's file: which campaigns it makes, and how a mistake in it is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector_tax.base.config import load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError
from connector_tax.sweep import Sweep, load_sweep, write_configs

Changed = Callable[[dict[str, Any]], None]


@pytest.fixture(autouse=True)
def files_below_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sweep, "folder", tmp_path / "sweeps")


def value() -> dict[str, Any]:
    return {
        "sweep": "study",
        "base": "config/demo.yaml",
        "axes": {
            "release": [
                {"name": "r1", "set": {"engine": {"env": {"RELEASE": "1"}}}},
                {"name": "r2", "set": {"engine": {"env": {"RELEASE": "2"}}}},
            ],
            "model": [
                {"name": "small", "set": {"engine": {"model": "small", "args": {"max_num_seqs": 8}}}},
                {"name": "large"},
            ],
        },
    }


def file_of(tmp_path: Path, change: Changed = lambda v: None) -> Path:
    mapping = value()
    change(mapping)
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(mapping, sort_keys=False))
    return path


def refused(tmp_path: Path, change: Changed) -> str:
    path = file_of(tmp_path, change)
    with pytest.raises(ConfigError) as told:
        load_sweep(path)
    text = str(told.value)
    assert text.startswith(f"{path}: ") and "\n" not in text
    return text.removeprefix(f"{path}: ")


def test_every_combination_is_a_campaign_of_its_own(tmp_path: Path) -> None:
    sweep = load_sweep(file_of(tmp_path))
    names = ["study-r1-small", "study-r1-large", "study-r2-small", "study-r2-large"]
    assert [c.name for c in sweep.cells] == [c.config.campaign for c in sweep.order] == names
    first, last = sweep.cells[0].config, sweep.cells[-1].config
    assert (first.engine.model, first.engine.args["max_num_seqs"], first.engine.env["RELEASE"]) == (
        "small",
        8,
        "1",
    )
    assert (last.engine.model, last.engine.env["RELEASE"]) == ("embedded-engine", "2")
    assert "max_num_seqs" not in last.engine.args
    assert first.engine.args["max_model_len"] == 4096, "what an entry does not name stays the base's"


def test_the_files_that_are_written_are_those_campaigns(tmp_path: Path) -> None:
    sweep = load_sweep(file_of(tmp_path))
    paths = write_configs(sweep)
    assert [load_campaign(path) for path in paths] == [c.config for c in sweep.cells]
    stamps = [path.stat().st_mtime_ns for path in paths]
    write_configs(sweep)
    assert [path.stat().st_mtime_ns for path in paths] == stamps, "the same content is left alone"


def test_references_to_the_environment_stay_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_MODEL", "/models/some")

    def refer(v: dict[str, Any]) -> None:
        v["axes"]["model"][1]["set"] = {
            "engine": {"model": "${SOME_MODEL}", "env": {"HF_TOKEN": "${HF_TOKEN}"}}
        }

    sweep = load_sweep(file_of(tmp_path, refer))
    assert sweep.cells[1].config.engine.model == "/models/some"
    text = write_configs(sweep)[1].read_text()
    assert "${SOME_MODEL}" in text and "${HF_TOKEN}" in text and "/models/some" not in text


def test_a_secret_is_written_into_no_file(tmp_path: Path) -> None:
    def tell(v: dict[str, Any]) -> None:
        v["axes"]["model"][1]["set"] = {
            "engine": {"env": {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyzABCDEF"}}
        }

    with pytest.raises(ConfigError, match=r"engine\.env\.HF_TOKEN: .*Write \$\{HF_TOKEN\}") as told:
        load_sweep(file_of(tmp_path, tell))
    assert "hf_abc" not in str(told.value)
    assert not list(tmp_path.glob("sweeps/*.yaml")), "none of the others either"


def test_excluded_combinations_are_no_campaigns(tmp_path: Path) -> None:
    def leave_out(v: dict[str, Any]) -> None:
        v["exclude"] = [{"release": ["r1", "r2"], "model": "large"}]

    sweep = load_sweep(file_of(tmp_path, leave_out))
    assert ([c.name for c in sweep.cells], sweep.excluded) == (["study-r1-small", "study-r2-small"], 2)


def test_a_seeded_order_is_the_same_each_time_and_another_with_another_seed(tmp_path: Path) -> None:
    orders = []
    for seed in (1, 1, 2, 3, 4):
        sweep = load_sweep(file_of(tmp_path, lambda v, seed=seed: v.update(order="seeded", seed=seed)))
        orders.append(tuple(c.name for c in sweep.order))
        assert sorted(orders[-1]) == sorted(c.name for c in sweep.cells)
    assert orders[0] == orders[1]
    assert len(set(orders)) > 1


def test_an_unknown_key_is_told_with_its_entry(tmp_path: Path) -> None:
    def mistake(v: dict[str, Any]) -> None:
        v["axes"]["release"][1]["set"]["engine"]["pyhton"] = "x"

    said = refused(tmp_path, mistake)
    assert said.startswith(
        "axes.release[1] (r2), set: engine: unknown key 'pyhton'; did you mean 'python'? Allowed: "
    )


def test_what_only_a_combination_gets_wrong_is_told_with_the_combination(tmp_path: Path) -> None:
    def mistake(v: dict[str, Any]) -> None:
        v["axes"]["release"][1]["set"] = {"engine": {"args": {"max_model_len": 1000}}}
        v["axes"]["model"][1]["set"] = {"phase_a": {"input_tokens": 990}}

    said = refused(tmp_path, mistake)
    assert said.startswith(
        "campaign study-r2-large (release r2, model large): engine.args.max_model_len: 1000 is below"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v.update(axis={}), "unknown key 'axis'; did you mean 'axes'? Allowed: sweep, base, axes, exclude, order, seed."),
        (lambda v: v["axes"].update(Model=[{"name": "a"}]), "axes: the name 'Model' is not allowed; wanted: `str` matching "),
        (lambda v: v["axes"]["model"].append({"name": "a/b"}), "axes.model[2].name: 'a/b' is not allowed; wanted: `str` matching "),
        (lambda v: v["axes"]["model"].append({"name": "small"}), "axes.model[2].name: 'small' is the name of axes.model[0] as well"),
        (lambda v: v["axes"]["model"][1].update(set={"campaign": "x"}), "axes.model[1].set.campaign: the name of a campaign is made of"),
        (lambda v: v.update(exclude=[{"model": "medium"}]), "exclude[0]: model 'medium' is not in this sweep ({'release': "),
        (lambda v: v.update(exclude=[{"model": ["small", "large"]}]), "axes: make 0 campaigns, those that exclude leaves; 1 to 500 are measured."),
        (
            lambda v: v["axes"].update({f"a{k}": [{"name": f"e{n}"} for n in range(100)] for k in range(9)}),
            "axes: make 4000000000000000000 campaigns, ",
        ),
        (
            lambda v: v["axes"]["model"][0]["set"]["engine"].update(env={"RELEASE": "9"}),
            "axes.model[0].set.engine.env.RELEASE: axes.release[0] sets it as well, to another value.",
        ),
        (
            lambda v: v["axes"]["model"][0]["set"]["engine"].update(env=None),
            "axes.model[0].set.engine.env: axes.release[0] sets it as well",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_one_message_with_its_place(tmp_path: Path, change: Changed, said: str) -> None:
    assert refused(tmp_path, change).startswith(said)


def test_two_campaigns_of_one_name_are_told_with_both_combinations(tmp_path: Path) -> None:
    def collide(v: dict[str, Any]) -> None:
        v["axes"] = {"a": [{"name": "x"}, {"name": "x-Y"}], "b": [{"name": "y-z"}, {"name": "z"}]}

    said = refused(tmp_path, collide)
    assert (
        said == "axes: two campaigns have one name, study-x-Y-z: a x, b y-z, and a x-Y, b z. Rename an entry."
    )


def test_the_shipped_sweep_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without any of the variables that it names, too."""
    for name in ("ENGINE_PYTHON_031", "ENGINE_PYTHON_032", "MODEL_FOLDER", "SMALL_MODEL_FOLDER"):
        monkeypatch.delenv(name, raising=False)
    sweep = load_sweep(PROJECT_ROOT / "config" / "sweep.yaml")
    assert (len(sweep.cells), sweep.excluded) == (6, 2)
    assert len(write_configs(sweep)) == 6
