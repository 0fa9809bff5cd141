"""What a check is asked for, and the campaigns that follow from it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made import NOOP, model_in, request

from connector_tax.base.errors import ConfigError
from connector_tax.base.plan import config_of, read_campaign_file
from connector_tax.base.records.host import StepCosts
from connector_tax.base.units import ratio_of
from connector_tax.check.campaign import AGAIN, LOAD_SHARE, rate_for, virtual_load, write_campaign
from connector_tax.check.request import GIVEN, engine_python_of, entry_by_id, entry_of_json
from connector_tax.cli import command
from connector_tax.run.measure.locks import wait_for_card_s
from connector_tax.virtual_time import Load

ROOT = Path(__file__).parents[3]
NIXL = '{"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cuda"}'


def _with_extra(value: str) -> str:
    return f'{NOOP[:-1]}, "kv_connector_extra_config": {value}}}'


def test_a_campaign_has_plain_twice_and_one_load(tmp_path: Path) -> None:
    """What plain differs from itself by is a tax as any other."""
    config = write_campaign(request(tmp_path), tmp_path, "three", duration_s=4.0)
    assert config.connector_ids == ("plain", GIVEN, AGAIN)
    assert config.phases == ("a",) and len(config.phase_a_rates_per_s) == 1
    assert wait_for_card_s(config.engine) >= 300, "another check may be at its real launch"
    assert config_of(read_campaign_file(tmp_path / "three" / "campaign.json")) == config


def test_of_two_checks_in_one_folder_the_second_is_refused(tmp_path: Path) -> None:
    write_campaign(request(tmp_path), tmp_path, "launch", duration_s=1.0)
    with pytest.raises(ConfigError, match=r"another check has begun there\. Give a new folder"):
        write_campaign(request(tmp_path), tmp_path, "launch", duration_s=1.0)


def test_the_load_is_a_share_of_what_the_device_holds(tmp_path: Path) -> None:
    """200 tokens of 5 us and 10 answers' steps of 100 us: 2 ms a request, 500 requests/s."""
    asked = request(tmp_path, input_tokens=200, output_tokens=10)
    costs = StepCosts(1000.0, 5.0, 100.0, 0.0)
    assert rate_for(asked, costs, cores=100) == pytest.approx(500 * LOAD_SHARE)
    assert rate_for(asked, costs, cores=2) < 50, "the host holds less"


@pytest.mark.parametrize(
    ("gpu", "name", "args", "rate_per_s"),
    [
        pytest.param("h200", "Qwen3-Coder-30B-A3B-Instruct", {}, 24.0, id="as published"),
        pytest.param("h20", "Qwen3-14B", {}, 6.2, id="a slow GPU"),
        pytest.param(
            "h200", "Qwen3-Coder-30B-A3B-Instruct", {"max_num_seqs": 1}, 5.6, id="one request at a time"
        ),
    ],
)
def test_virtual_time_loads_no_engine_with_more_than_it_holds(
    tmp_path: Path, gpu: str, name: str, args: dict[str, int], rate_per_s: float
) -> None:
    model = tmp_path / "made"
    model.mkdir()
    (model / "config.json").write_bytes((ROOT / "config" / "models" / f"{name}.json").read_bytes())
    asked = replace(request(tmp_path, gpu=gpu, args=args), model=model)
    load = virtual_load(write_campaign(asked, tmp_path, "one", duration_s=1.0), Load())
    assert (load.rate_per_s, load.input_tokens, load.requests) == (rate_per_s, 256, Load().requests)


def test_what_asks_for_a_gpus_memory_is_given_the_hosts_and_that_is_said() -> None:
    multi = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [json.loads(NIXL)]},
    }
    for text in (NIXL, json.dumps(multi)):
        entry, notes = entry_of_json(text)
        assert '"cuda"' not in json.dumps(entry.kv_transfer_config)
        assert "kv_buffer_device cuda was made cpu" in notes[0]


def test_ports_of_a_known_connector_are_looked_at_before_its_launches() -> None:
    ports = [p.env for p in entry_of_json(NIXL)[0].side_ports]
    assert ports == ["VLLM_NIXL_SIDE_CHANNEL_PORT"]
    assert entry_of_json(NOOP)[0].side_ports == ()


def test_a_host_with_few_cores_is_no_reason_to_skip_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    entry, notes = entry_by_id("nixl_cpu")
    assert entry.min_cores == 0
    assert "asks for 4 cores and this host has 2" in notes[0]


@pytest.mark.parametrize("text", ["{", '{"kv_connector": "X"}'])
def test_what_is_no_connector_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match="--kv-transfer-config"):
        entry_of_json(text)


def test_plain_and_unknown_ids_are_refused() -> None:
    with pytest.raises(ConfigError, match="without a connector"):
        entry_by_id("plain")
    with pytest.raises(ConfigError, match="Known: plain, noop_connector"):
        entry_by_id("nixl_bth")


@pytest.mark.parametrize(("text", "value"), [("2 %", 0.02), ("0.02", 0.02)])
def test_a_limit_is_a_percentage_or_a_ratio(text: str, value: float) -> None:
    assert ratio_of(text) == value


@pytest.mark.parametrize("text", ["2", "-1%", "nan"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ratio"):
        ratio_of(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--kv-transfer-config", NOOP.replace("kv_both", "both")],
            "kv_role: 'both' is not allowed; wanted: one of kv_producer",
        ),
        (
            ["--kv-transfer-config", _with_extra('{"connectors": [{"kv_connector": "A"}]}')],
            "kv_connector_extra_config.connectors[0]: missing 'kv_role'",
        ),
        (
            ["--kv-transfer-config", _with_extra('{"connectors": [], "password": "hunter2hunter2"}')],
            "kv_connector_extra_config.password: a secret, by its name, is written out here",
        ),
        (["--connector", "noop_connector", "--model-config", "nobody"], "no such model"),
        (["--connectors", "noop_connector"], "the record needs both"),
        (["--connectors", "noop_connector", "--releases", "0.32.0"], "Give its folder with --to"),
        (
            ["--connector", "noop_connector", "--engine-args", '{"gpu_memory_utilization": "x"}'],
            "gpu_memory_utilization: 'x': wanted is a number above 0",
        ),
    ],
)
def test_bad_input_is_one_message(
    tmp_path: Path, refused: Callable[..., None], arguments: list[str], words: str
) -> None:
    model = [] if "--model-config" in arguments else ["--model-config", str(model_in(tmp_path))]
    refused(words, *model, *arguments)


@pytest.mark.parametrize(
    ("document", "words"),
    [("[]", "wanted is a model's config.json"), ('{"layer_types": 5}', "layer_types that is no list (5)")],
)
def test_a_model_that_is_none_is_one_message(
    tmp_path: Path, refused: Callable[..., None], document: str, words: str
) -> None:
    (tmp_path / "config.json").write_text(document)
    refused(words, "--connector", "noop_connector", "--model-config", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "asked"), [("check", ["--connector", "noop_connector"]), ("run", ["--smoke"])]
)
def test_without_an_interpreter_both_ways_to_give_one_are_said(
    name: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ENGINE_PYTHON", raising=False)
    with pytest.raises(ConfigError, match=r"--engine-python .* or export ENGINE_PYTHON="):
        command(name).call(asked)


def test_the_interpreter_of_the_environment_is_taken_where_none_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ENGINE_PYTHON", "/bin/true")
    parser = command("check").parser()
    asked = ["--connector", "noop_connector"]
    assert engine_python_of(parser.parse_args(asked)) == "/bin/true"
    assert engine_python_of(parser.parse_args([*asked, "--engine-python", "/bin/false"])) == "/bin/false"


@pytest.mark.parametrize(
    ("given", "said"),
    [("/nope", "no such program"), ("{file}", "may not be executed")],
)
def test_an_interpreter_that_cannot_be_run_is_refused_first(tmp_path: Path, given: str, said: str) -> None:
    (tmp_path / "file").write_text("")
    asked = ["--connector", "noop_connector", "--engine-python", given.format(file=tmp_path / "file")]
    with pytest.raises(ConfigError, match=rf"--engine-python .*{said}"):
        command("check").call(asked)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., None]:
    """A mistake that the door tells as one message, with code 2."""
    monkeypatch.chdir(ROOT)

    def ask(words: str, *arguments: str) -> None:
        with pytest.raises((ConfigError, SystemExit)) as told:
            command("check").call(["--engine-python", "/bin/true", *arguments])
        said = capsys.readouterr()
        assert words in f"{told.value}{said.err}" and said.out == ""
        assert not isinstance(told.value, SystemExit) or told.value.code == 2

    return ask
