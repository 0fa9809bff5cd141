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


def changed(changes: dict[Any, Any]) -> dict[str, Any]:
    """The demo with other values, by the place of each: ``cell.warmup``, or as keys where these have points."""
    value = demo()
    for place, new in changes.items():
        *way, last = place.split(".") if isinstance(place, str) else place
        inner = value
        for key in way:
            inner = inner.setdefault(key, {})
        inner[last] = new
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


COSTS = yaml.safe_load((CONFIG / "engine_model.yaml").read_text())["engine"]
LEN = "engine.args.max_model_len"
# What is changed, and with what each line begins that is said of it.
REFUSED: list[tuple[dict[Any, Any], str]] = [
    ({"cell.warmup": 3}, "cell: unknown key 'warmup'; did you mean 'warmup_s'? Allowed: arrival, gamma_shape"),
    ({"phase_a.rates_per_s": [4, -1]}, "phase_a.rates_per_s[1]: -1 is not allowed; wanted: `float` >= 1e-06."),
    ({"phase_a.rates_per_s": [float("nan")]}, "phase_a.rates_per_s[0]: .inf and .nan are no numbers to work with"),
    ({"phase_a.rates_per_s": [4, 8, 4.0]}, "phase_a.rates_per_s[2]: stands there already"),
    # A cell of too few requests for an interval.
    ({"cell.min_completed": 5}, "cell.min_completed: 5 is not allowed; wanted: `int` >= 6."),
    ({"seed": "seven"}, "seed: 'seven' is not allowed; wanted: `int`."),
    # It passed, and the first job took campaign.json for edited by hand.
    ({"seed": 7.0}, "seed: 7.0 is not allowed; wanted: `int`."),
    ({"connectors": ["noop_connector"], "phase_b_prime": {}}, "connectors: holds no 'plain'; every tax is taken against it"),
    ({"connectors": [*demo()["connectors"], "lmcache_onli"]}, "connectors[8]: unknown connector 'lmcache_onli'; did you mean 'lmcache_only'?"),
    ({"engine.args": {"revision": "x", "seeds": [1]}}, "engine.args.seeds: [1] is not allowed; wanted: `bool | int | float"),
    ({"engine.env": {"A": "1", "B": 2}}, "engine.env.B: 2 is not allowed; wanted: `str`."),
    # A shell cannot set it, so the engine would be launched without it and nobody would say so.
    ({"engine.env": {"A": "DEBUG", "MY VAR": "1"}}, "engine.env: the name 'MY VAR' is not allowed; wanted: "),
    ({"engine.env": {7: "1"}}, "engine.env: the name 7 is not allowed; wanted: "),
    ({"engine.kind": "emulater"}, "engine.kind: 'emulater' is not allowed; wanted: one of vllm, virtual_gpu, emulator."),
    ({"engine.kind": "vllm"}, "engine.python: null, but engine.kind is vllm"),
    ({"engine.container": {"image": "i", "runtime": "dokcer"}}, "engine.container.runtime: 'dokcer' is not allowed; wanted: one of podman"),
    ({"engine.costs": COSTS}, "engine.costs: given, but engine.kind is emulator"),
    ({("engine", "x` - at `$.y"): 1}, "engine: unknown key 'x` - at `$.y'. Allowed: kind"),
    ({("engine", 7): 1}, "engine: unknown key 7. Allowed: kind"),
    ({"phase_b.input_tokens": [100000]}, "engine.args.max_model_len: 4096 is below the longest request"),
    ({LEN: "0.1k"}, "engine.args.max_model_len: 100 is below the longest request"),
    ({LEN: "long"}, "engine.args.max_model_len: 'long' is no number of tokens. Give"),
    ({"cell.max_cell_s": 0.5}, "cell.max_cell_s: 0.5"),
    # agent.jsonl's last turn: 2048 + 64, 256 + 64, 128 + 128 tokens.
    ({"phase_c.sessions": ["config/sessions/agent.jsonl"], LEN: 2687}, "engine.args.max_model_len: 2687 is below the longest request of this campaign (2688 tokens"),
    ({"phase_d.cached_tokens": [0, 16000], "engine.args.enable_prefix_caching": False}, "phase_d.cached_tokens: engine.args.enable_prefix_caching is false, so nothing stays cached"),
    ({"phase_d.cached_tokens": [0], "cell.max_cell_s": 60, "cell.inflight_cap": 31}, "phase_d.running: 32 requests cannot run at once"),
    ({"phase_d.cached_tokens": [0], "cell.max_cell_s": 60, "engine.args.max_num_seqs": 16}, "phase_d.running: 32 requests cannot run at once"),
    ({"phase_d": {"cached_tokens": [0], "input_tokens": 4000, "output_tokens": 97}, "cell.max_cell_s": 60}, "engine.args.max_model_len: 4096 is below the longest request of this campaign (4097 tokens"),
    # 1,000 blocks of 16 hold 16,000 tokens; 8 requests of 384 run beside.
    ({"phase_d": {"cached_tokens": [0, 12_929], "running": [1, 8]}, "cell.max_cell_s": 60, "engine.args.num_gpu_blocks_override": 1000}, "phase_d.cached_tokens"),
    ({"phase_d.cached_tokens": [0]}, "phase_d: warm-up plus window take 12 s, cell.max_cell_s is 4 s"),
    # `$` in a pattern matches before a last line feed: "demo\n" was a campaign, in another folder than it said.
    ({"campaign": "demo\n"}, "campaign: "),
    ({"campaign": "d" * 300}, "campaign: "),
    ({"engine.env": {"A\n": "1"}}, "engine.env: "),
    ({"engine.args.revision": "a\0b"}, "engine.args.revision: "),
    ({"engine.args.revision": "a\ud800b"}, "engine.args.revision: "),
    ({"seed": 2**63}, "seed: "),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "said"), REFUSED, ids=lambda x: x[:60] if isinstance(x, str) else "")
def test_what_is_wrong_is_one_line_with_its_place_and_what_is_allowed(
    changes: dict[Any, Any], said: str
) -> None:
    first, *known = refusal(changed(changes)).splitlines()
    assert first.startswith(f"config/mine.yaml: {said}") and all(line.startswith("Known: ") for line in known)


def test_a_person_corrects_the_file_once() -> None:
    """Every mistake is told at once, in the order of the file, also out of lists; missing keys once."""
    wrong = {"phase_a.rates_per_s": [4, -1, "x"], "phase_b_prime.shapes": [[64, 1]]}
    assert [line.partition(" is not allowed")[0] for line in refusal(changed(wrong)).splitlines()] == [
        "config/mine.yaml: phase_a.rates_per_s[1]: -1",
        "config/mine.yaml: phase_a.rates_per_s[2]: 'x'",
        "config/mine.yaml: phase_b_prime.shapes[0][1]: 1",
    ]
    wrong = {"seed": -1, "cell.inflight_cap": 0, "repeats": 100, "repeat_requests": 1}
    assert len(refusal(changed(wrong)).splitlines()) == 3
    assert refusal({"campaign": "x"}) == "config/mine.yaml: missing 'connectors', 'engine', 'phase_a'."


PLAIN = {"label": "x", "kv_transfer_config": None}
STACK = {"kv_connector": "MultiConnector", "kv_role": "kv_both"}
STACK |= {"kv_connector_extra_config": {"connectors": [{"kv_connector": "Own", "kv_rol": "kv_both"}]}}


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"env": {"UCX TLS": "tcp"}}, "own.env: the name 'UCX TLS' is not allowed; wanted: `str` matching"),
        ({"kv_transfer_config": {"kv_connector": "Own", "kv_role": "kv_bth"}}, "own.kv_transfer_config.kv_role: 'kv_bth' is not allowed; wanted: one of kv_producer"),
        ({"kv_transfer_config": STACK}, "own.kv_transfer_config.kv_connector_extra_config.connectors[0]: missing 'kv_role'"),
    ],
)  # fmt: skip
def test_a_connectors_entry_is_held_to_the_same(tmp_path: Path, entry: dict[str, Any], said: str) -> None:
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump({"plain": PLAIN, "own": {**PLAIN, **entry}}))
    assert said in refusal({**demo(), "connectors_file": str(tmp_path / "connectors.yaml")})


def test_yaml_that_does_not_parse_is_one_message(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("campaign: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        load_campaign(broken)


def test_environment_variables_are_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_PYTHON", "/opt/engine/bin/python")
    assert load_campaign(CONFIG / "config.yaml").engine.python == "/opt/engine/bin/python"


def test_what_is_just_long_enough_is_taken() -> None:
    """The last of what is refused above, one token further; a session file is read when the campaign is."""
    talks = changed({"phase_c.sessions": ["config/sessions/agent.jsonl"], LEN: 2688})
    (file,) = parse_campaign(talks, where="mine").phase_c.sessions
    assert file.turns_per_session == 5.0
    with pytest.raises(ConfigError, match=r"none\.jsonl: cannot be read"):
        parse_campaign(changed({"phase_c.sessions": ["config/sessions/none.jsonl"]}), where="mine")
    levels = {"cached_tokens": [12_928, 0], "running": [1, 8]}
    blocks = {"phase_d": levels, "cell.max_cell_s": 60, "engine.args.num_gpu_blocks_override": 1000}
    assert parse_campaign(changed(blocks), where="mine").phase_d.cached_tokens == (0, 12_928)


def test_verification_can_be_asked_for_by_any_entry(tmp_path: Path) -> None:
    known = yaml.safe_load((CONFIG / "connectors.yaml").read_text())
    known["nixl_both"]["verify"] = True
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump(known))
    config = parse_campaign({**demo(), "connectors_file": str(tmp_path / "connectors.yaml")}, where="mine")
    assert config.connector("nixl_both").verify == "serve"


def test_a_length_with_a_suffix_is_the_number_that_vllm_makes_of_it() -> None:
    value = changed({LEN: "32k", "engine.args.max_num_batched_tokens": "8K"})
    args = parse_campaign(value, where="c.yaml").engine.args
    assert (args["max_model_len"], args["max_num_batched_tokens"]) == (32_000, 8192)


@pytest.mark.parametrize("left_open", ["auto", -1])
def test_a_length_that_is_left_to_the_engine_limits_nothing(left_open: object) -> None:
    """It is passed on as it is, and prompts are as long as where nothing is said."""
    config = parse_campaign(changed({LEN: left_open, "phase_b.input_tokens": [100000]}), where="c.yaml")
    assert config.engine.args["max_model_len"] == left_open
    assert long_length(config) == LONG_PROMPT_TOKENS
