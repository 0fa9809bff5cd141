"""What a person who edits the YAML is told."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from connector_tax.base.config import load_campaign, parse_campaign
from connector_tax.base.errors import ConfigError
from connector_tax.run.measure.checks import LONG_PROMPT_TOKENS, long_length

CONFIG = Path(__file__).parents[3] / "config"


def demo() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load((CONFIG / "demo.yaml").read_text())
    return value


def refusal(value: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_campaign(value, where="config/mine.yaml")
    return str(caught.value)


@pytest.mark.parametrize("name", ["config.yaml", "demo.yaml", "vllm-cpu.yaml"])
def test_every_shipped_campaign_is_valid(name: str) -> None:
    """The campaigns in config/ pass their own schema."""
    assert load_campaign(CONFIG / name).connectors[0].id == "plain"


def test_the_full_campaign_is_the_published_experiment() -> None:
    """config.yaml measures what the experiment's design lists, number by number."""
    config = load_campaign(CONFIG / "config.yaml")
    assert config.phase_a_rates_per_s == (0.5, 1, 2, 4, 8, 16, 32)
    assert (config.phase_a_shape.input_tokens, config.phase_a_shape.output_tokens) == (4096, 256)
    assert config.phase_b_input_tokens == (512, 4096, 32768)
    assert config.phase_b_output_tokens == (64, 256, 1024)
    cell = config.cell
    assert (cell.warmup_s, cell.duration_s, cell.max_completed, cell.inflight_cap) == (10, 60, 200, 256)
    assert config.engine.args["max_model_len"] == 200000
    assert config.engine.args["max_num_batched_tokens"] == 8192
    assert len(config.connectors) == 8


def test_an_unknown_key_is_named_with_what_is_allowed() -> None:
    value = demo()
    value["cell"]["warmup"] = 3
    message = refusal(value)
    assert (
        "config/mine.yaml: cell: unknown key 'warmup'; did you mean 'warmup_s'? Allowed: arrival, gamma_shape"
        in message
    )
    assert len(message.splitlines()) == 1


def test_an_impossible_value_is_named_with_its_place() -> None:
    value = demo()
    value["phase_a"]["rates_per_s"] = [4, -1]
    assert "phase_a.rates_per_s[1]: -1 is not allowed; wanted: `float` >= 1e-06." in refusal(value)


def test_a_rate_that_is_no_number_is_refused() -> None:
    value = demo()
    value["phase_a"]["rates_per_s"] = [float("nan")]
    assert "phase_a.rates_per_s[0]: .inf and .nan are no numbers to work with" in refusal(value)


def test_a_cell_of_too_few_requests_for_an_interval_is_refused() -> None:
    value = demo()
    value["cell"]["min_completed"] = 5
    assert "cell.min_completed: 5 is not allowed; wanted: `int` >= 6." in refusal(value)


def test_a_wrong_type_is_named() -> None:
    value = demo()
    value["seed"] = "seven"
    assert "seed: 'seven' is not allowed; wanted: `int`." in refusal(value)


def test_keys_that_are_missing_are_named_once() -> None:
    assert refusal({"campaign": "x"}).splitlines() == [
        "config/mine.yaml: missing 'connectors', 'engine', 'phase_a'."
    ]


def test_a_whole_number_that_is_written_with_a_point_is_refused_before_anything_starts() -> None:
    """It passed, and the first job took ``campaign.json`` for edited by hand."""
    value = demo()
    value["seed"] = 7.0
    value["phase_b"]["input_tokens"] = [64, 256.0]
    message = refusal(value)
    assert "seed: 7.0 is not allowed; wanted: `int`." in message
    assert "phase_b.input_tokens[1]: 256.0 is not allowed; wanted: `int`." in message


@pytest.mark.parametrize("name", ["MY VAR", "A=B", "1ST", "", 7])
def test_a_name_that_no_environment_variable_can_have_is_refused(name: object) -> None:
    """A shell cannot set it, so the engine would be launched without it and nobody would say so."""
    value = demo()
    value["engine"]["env"] = {"VLLM_LOGGING_LEVEL": "DEBUG", name: "1"}
    message = refusal(value)
    assert message.startswith(f"config/mine.yaml: engine.env: the name {name!r} is not allowed; wanted: ")
    assert len(message.splitlines()) == 1


def test_a_connectors_environment_is_held_to_the_same(tmp_path: Path) -> None:
    entry = {"label": "x", "kv_transfer_config": None, "env": {"UCX TLS": "tcp"}}
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump({"plain": entry}))
    value = demo()
    value["connectors_file"] = str(tmp_path / "connectors.yaml")
    assert "plain.env: the name 'UCX TLS' is not allowed; wanted: `str` matching" in refusal(value)


def test_a_campaign_without_the_baseline_is_refused() -> None:
    value = demo()
    value["connectors"] = ["noop_connector"]
    value["phase_b_prime"] = {}
    assert "holds no 'plain'; every tax is taken against it" in refusal(value)


def test_an_unknown_connector_is_answered_with_the_known_ones() -> None:
    value = demo()
    value["connectors"].append("lmcache_onli")
    message = refusal(value)
    assert "connectors[8]: unknown connector 'lmcache_onli'; did you mean 'lmcache_only'?" in message
    assert "Known: plain, noop_connector" in message


def test_three_complaints_come_at_once() -> None:
    """A person corrects the file once, not once per mistake."""
    value = demo()
    value["seed"], value["cell"]["inflight_cap"] = -1, 0
    assert len(refusal(value).splitlines()) == 2
    value["repeats"], value["repeat_requests"] = 100, 1
    assert len(refusal(value).splitlines()) == 3
    value["engine"]["kind"] = "emulater"
    assert len(refusal(value).splitlines()) == 3


def test_mistakes_come_in_the_order_of_the_file_and_from_lists_as_well() -> None:
    value = demo()
    value["phase_a"]["rates_per_s"] = [4, -1, "x"]
    value["phase_b_prime"]["shapes"] = [[64, 1]]
    assert [line.partition(" is not allowed")[0] for line in refusal(value).splitlines()] == [
        "config/mine.yaml: phase_a.rates_per_s[1]: -1",
        "config/mine.yaml: phase_a.rates_per_s[2]: 'x'",
        "config/mine.yaml: phase_b_prime.shapes[0][1]: 1",
    ]


def test_an_entry_twice_in_a_list_is_refused() -> None:
    value = demo()
    value["phase_a"]["rates_per_s"] = [4, 8, 4.0]
    assert "phase_a.rates_per_s[2]: stands there already" in refusal(value)


@pytest.mark.parametrize(
    ("section", "given", "said"),
    [
        ("args", {"revision": "x", "seeds": [1]}, "engine.args.seeds: [1] is not allowed; wanted: `bool | int | float"),
        ("env", {"A": "1", "B": 2}, "engine.env.B: 2 is not allowed; wanted: `str`."),
        ("kind", "emulater", "engine.kind: 'emulater' is not allowed; wanted: one of vllm, virtual_gpu, emulator."),
        ("container", {"image": "i", "runtime": "dokcer"}, "engine.container.runtime: 'dokcer' is not allowed; wanted: one of podman"),
        ("modle_file", "x", "engine: unknown key 'modle_file'; did you mean 'model_file'?"),
        ("costs", yaml.safe_load((CONFIG / "engine_model.yaml").read_text())["engine"], "engine.costs: given, but engine.kind is emulator"),
        ("x` - at `$.y", 1, "engine: unknown key 'x` - at `$.y'. Allowed: kind"),
        (7, 1, "engine: unknown key 7. Allowed: kind"),
    ],
)  # fmt: skip
def test_the_key_path_is_named_also_where_names_are_free(section: Any, given: object, said: str) -> None:
    value = demo()
    value["engine"][section] = given
    message = refusal(value)
    assert message.startswith(f"config/mine.yaml: {said}") and len(message.splitlines()) == 1


def test_a_connector_without_its_role_is_refused(tmp_path: Path) -> None:
    entries = {
        "plain": {"label": "x", "kv_transfer_config": None},
        "own": {"label": "y", "kv_transfer_config": {"kv_connector": "Own", "kv_role": "kv_bth"}},
    }
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump(entries))
    value = {**demo(), "connectors_file": str(tmp_path / "connectors.yaml")}
    assert "own.kv_transfer_config.kv_role: 'kv_bth' is not allowed; wanted: one of kv_producer" in refusal(
        value
    )


def test_a_connector_in_a_stack_is_held_to_the_same(tmp_path: Path) -> None:
    child = {"kv_connector": "Own", "kv_rol": "kv_both"}
    stack = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": [child]},
    }
    entries = {
        "plain": {"label": "x", "kv_transfer_config": None},
        "own": {"label": "y", "kv_transfer_config": stack},
    }
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump(entries))
    value = {**demo(), "connectors_file": str(tmp_path / "connectors.yaml")}
    assert "own.kv_transfer_config.kv_connector_extra_config.connectors[0]: missing 'kv_role'" in refusal(
        value
    )


def test_requests_longer_than_the_engine_takes_are_refused() -> None:
    value = demo()
    value["phase_b"]["input_tokens"] = [100000]
    assert "max_model_len: 4096 is below the longest request" in refusal(value)


def test_a_cell_that_can_never_finish_is_refused() -> None:
    value = demo()
    value["cell"]["max_cell_s"] = 0.5
    assert "no cell could ever finish" in refusal(value)


def test_real_vllm_needs_an_interpreter() -> None:
    value = demo()
    value["engine"]["kind"] = "vllm"
    assert "engine.python: null, but engine.kind is vllm" in refusal(value)


def test_yaml_that_does_not_parse_is_one_message(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("campaign: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_campaign(broken)


def test_environment_variables_are_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_PYTHON", "/opt/engine/bin/python")
    assert load_campaign(CONFIG / "config.yaml").engine.python == "/opt/engine/bin/python"


def test_a_session_file_is_read_when_the_campaign_is() -> None:
    value = demo()
    value["phase_c"] = {"sessions": ["config/sessions/agent.jsonl"]}
    (file,) = parse_campaign(value, where="config/mine.yaml").phase_c.sessions
    assert file.turns_per_session == 5.0
    value["phase_c"]["sessions"] = ["config/sessions/none.jsonl"]
    assert "none.jsonl: cannot be read" in refusal(value)


def test_conversations_longer_than_the_context_are_refused() -> None:
    """agent.jsonl's last turn: 2048 + 64, 256 + 64, 128 + 128 tokens."""
    value = demo()
    value["phase_c"] = {"sessions": ["config/sessions/agent.jsonl"]}
    value["engine"]["args"]["max_model_len"] = 2687
    assert "below the longest request of this campaign (2688 tokens" in refusal(value)
    value["engine"]["args"]["max_model_len"] = 2688
    parse_campaign(value, where="config/mine.yaml")


@pytest.mark.parametrize("connector", ["plain", "nixl_both"])
def test_verification_can_be_asked_for_by_any_entry(connector: str, tmp_path: Path) -> None:
    known = yaml.safe_load((CONFIG / "connectors.yaml").read_text())
    known[connector]["verify"] = True
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump(known))
    config = parse_campaign({**demo(), "connectors_file": str(tmp_path / "connectors.yaml")}, where="mine")
    assert config.connector(connector).verify == "serve"


def test_levels_without_a_prefix_cache_are_refused() -> None:
    value = demo()
    value["phase_d"] = {"cached_tokens": [0, 16000]}
    value["engine"]["args"]["enable_prefix_caching"] = False
    assert "enable_prefix_caching is false, so nothing stays cached" in refusal(value)


@pytest.mark.parametrize(
    ("section", "key", "limit", "where"),
    [("cell", "inflight_cap", 31, "cell.inflight_cap: 31"), ("args", "max_num_seqs", 16, "max_num_seqs: 16")],
)
def test_more_running_requests_than_may_run_are_refused(
    section: str, key: str, limit: int, where: str
) -> None:
    value = demo()
    value["phase_d"] = {"cached_tokens": [0]}
    (value["cell"] if section == "cell" else value["engine"]["args"])[key] = limit
    message = refusal(value)
    assert "phase_d.running: 32 requests cannot run at once" in message
    assert where in message


def test_a_request_of_phase_d_longer_than_the_context_is_refused() -> None:
    value = demo()
    value["phase_d"] = {"cached_tokens": [0], "input_tokens": 4000, "output_tokens": 97}
    value["cell"]["max_cell_s"] = 60
    assert "max_model_len: 4096 is below the longest request of this campaign (4097 tokens" in refusal(value)


def test_a_level_that_the_known_blocks_have_no_room_for_is_refused() -> None:
    """1,000 blocks of 16 hold 16,000 tokens; 8 requests of 384 run beside."""
    value = demo()
    value["cell"]["max_cell_s"] = 60
    value["engine"]["args"]["num_gpu_blocks_override"] = 1000
    value["phase_d"] = {"cached_tokens": [0, 12_929], "running": [1, 8]}
    assert "want 16001 tokens, and engine.args.num_gpu_blocks_override: 1000 has room for 16000" in refusal(
        value
    )
    value["phase_d"]["cached_tokens"] = [12_928, 0]
    config = parse_campaign(value, where="config/mine.yaml")
    assert config.phase_d.cached_tokens == (0, 12_928)


def test_cells_of_phase_d_longer_than_a_cell_may_be_are_refused() -> None:
    value = demo()
    value["phase_d"] = {"cached_tokens": [0]}
    assert "phase_d: warm-up plus window take 12 s, cell.max_cell_s is 4 s" in refusal(value)


def with_length(length: object) -> dict[str, Any]:
    value = demo()
    value["engine"]["args"]["max_model_len"] = length
    return value


def test_a_length_with_a_suffix_is_the_number_that_vllm_makes_of_it() -> None:
    value = with_length("32k")
    value["engine"]["args"]["max_num_batched_tokens"] = "8K"
    args = parse_campaign(value, where="c.yaml").engine.args
    assert (args["max_model_len"], args["max_num_batched_tokens"]) == (32_000, 8192)
    assert "max_model_len: 100 is below the longest request" in refusal(with_length("0.1k"))
    assert "engine.args.max_model_len: 'long' is no number of tokens. Give" in refusal(with_length("long"))


@pytest.mark.parametrize("left_open", ["auto", -1])
def test_a_length_that_is_left_to_the_engine_limits_nothing(left_open: object) -> None:
    """It is passed on as it is, and prompts are as long as where nothing is said."""
    value = with_length(left_open)
    value["phase_b"]["input_tokens"] = [100000]
    config = parse_campaign(value, where="c.yaml")
    assert config.engine.args["max_model_len"] == left_open
    assert long_length(config) == LONG_PROMPT_TOKENS


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        (None, "campaign", "demo\n"),
        (None, "campaign", "d" * 300),
        ("env", "A\n", "1"),
        ("args", "max_num_seqs\n", 1),
        ("args", "revision", "a\0b"),
        ("args", "revision", "a\ud800b"),
        (None, "seed", 2**63),
    ],
)
def test_a_name_matches_to_its_end_and_a_text_can_be_stored(
    section: str | None, key: str, value: object
) -> None:
    """``$`` in a pattern matches before a last line feed: ``demo\\n`` was a campaign, in another folder than it said."""
    config = demo()
    (config if section is None else config["engine"].setdefault(section, {}))[key] = value
    assert refusal(config).startswith("config/mine.yaml: ")
