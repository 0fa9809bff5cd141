"""What an engine is given in secret: neither launch.sh nor its logs keep it, and our own requests carry its key."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[2]))
from cell_specs import cell_spec

from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.records.target import bearing, target_of
from connector_tax.base.redaction import BLANKED, CONFIG_VARIABLE, published_text
from connector_tax.run.engine import logs, process
from connector_tax.run.engine.command import api_key, engine_arguments, engine_environment, referring
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.launch_words import fields
from connector_tax.run.engine.logs import NEAR_CHARS, clean_logs, launch_secrets
from connector_tax.run.engine.process import LaunchError, LaunchRequest, running_engine
from connector_tax.run.engine.root_cause import root_cause
from connector_tax.run.loadgen.cell import measure_cell
from connector_tax.run.loadgen.outputs import collect_outputs
from connector_tax.run.measure.preflight import KILLED
from connector_tax.run.measure.warmup import ask


@pytest.fixture
def campaign() -> CampaignConfig:
    return load_campaign(PROJECT_ROOT / "config" / "demo.yaml")


def with_engine(campaign: CampaignConfig, **changes: Any) -> CampaignConfig:
    return replace(campaign, engine=replace(campaign.engine, **changes))


@pytest.mark.parametrize("where", ["args", "extra_args", "env", "inherited"])
def test_an_engine_that_asks_for_a_key_is_asked_with_it(
    where: str, campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readiness, warm-up, the accuracy pass and the load; a stranger without it is refused."""
    given = {
        "args": {"args": {**campaign.engine.args, "api_key": "planted-key-1"}},
        "extra_args": {"extra_args": ("--api-key", "planted-key-1")},
        "env": {"env": {**campaign.engine.env, "VLLM_API_KEY": "planted-key-1"}},
        "inherited": {},
    }[where]
    if where == "inherited":
        monkeypatch.setenv("VLLM_API_KEY", "planted-key-1")
    config = with_engine(campaign, **given)
    with running_engine(LaunchRequest(config.engine, config.connector("plain"), tmp_path)) as engine:
        engine.wait_ready()
        assert httpx.get(f"{engine.base_url}/v1/models").status_code == 401
        assert ask(engine, config, 8, output_tokens=2, timeout_s=10).fault is None
        answers = collect_outputs(
            engine.base_url,
            engine.model,
            seed=1,
            prompts=1,
            input_tokens=8,
            output_tokens=2,
            token_ids=(1, 9),
            headers=engine.headers,
        )
        assert "token_ids" in answers[0]
        cell = cell_spec(rate_per_s=20, duration_s=0.2, warmup_s=0, min_completed=2, max_cell_s=5)
        outcome = measure_cell(
            cell,
            target_of(engine.base_url, engine.model, headers=bearing(engine.headers["Authorization"])),
        )
        assert {r.status for r in outcome.requests} == {"ok"}
    assert "planted-key-1" not in "".join(p.read_text() for p in tmp_path.glob("vllm_*.log"))


def test_a_key_of_the_config_is_on_no_command_line(campaign: CampaignConfig) -> None:
    """Everybody on a host can read the command lines of its processes."""
    config = with_engine(campaign, args={"api_key": "planted-key-1", "seed": 1})
    plain = config.connector("plain")
    assert engine_arguments(config.engine, plain) == ["--seed", "1"]
    assert engine_environment(config.engine, plain, Cards((), 0))["VLLM_API_KEY"] == "planted-key-1"


def test_the_command_lines_key_goes_before_the_environments(campaign: CampaignConfig) -> None:
    """As in vLLM."""
    config = with_engine(campaign, env={"VLLM_API_KEY": "a"}, extra_args=("--api-key=b",))
    assert api_key(config.engine, config.connector("plain")) == "b"


@pytest.mark.parametrize("key", ["schl\u00fcssel-1", "planted\nkey", "planted-\udcff"])
def test_a_key_that_no_header_carries_is_one_message_without_the_key(
    campaign: CampaignConfig, key: str
) -> None:
    config = with_engine(campaign, args={"api_key": key})
    with pytest.raises(ConfigError, match="no HTTP header can carry") as told:
        api_key(config.engine, config.connector("plain"))
    assert key not in str(told.value)


def test_the_config_that_is_handed_on_does_not_reach_the_engine(
    campaign: CampaignConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, "{}")
    assert CONFIG_VARIABLE not in engine_environment(
        campaign.engine, campaign.connector("plain"), Cards((), 0)
    )


def test_what_an_engine_printed_before_it_died_is_gone_from_its_log_and_its_cause(
    campaign: CampaignConfig, tmp_path: Path
) -> None:
    config = with_engine(
        campaign, extra_args=("--db-password", "planted-2", "--note", "RuntimeError: planted-2")
    )
    request = LaunchRequest(config.engine, config.connector("plain"), tmp_path, fault="die_at_start")
    with pytest.raises(LaunchError) as caught, running_engine(request) as engine:
        engine.wait_ready()
    log = (tmp_path / "vllm_stdout.log").read_text()
    assert "planted-2" not in log + str(caught.value) and f"'--db-password', '{BLANKED}'" in log


def test_the_log_of_a_killed_launch_is_gone_through_by_the_next(
    campaign: CampaignConfig, tmp_path: Path
) -> None:
    config = with_engine(campaign, env={**campaign.engine.env, "REDIS_PASSWORD": "planted-3"})
    (tmp_path / "vllm_stderr.log").write_bytes(b"logging in with planted-3\n\xff\xfe as it was\r\n")
    request = LaunchRequest(config.engine, config.connector("plain"), tmp_path, fault="die_at_start")
    with pytest.raises(LaunchError), running_engine(request) as engine:
        engine.wait_ready()
    assert (tmp_path / "vllm_stderr.log").read_bytes().startswith(
        b"logging in with <redacted>\n\xff\xfe as it was\r\n"
    )  # fmt: skip


def test_a_log_without_a_secret_is_left_alone(campaign: CampaignConfig, tmp_path: Path) -> None:
    log = tmp_path / "vllm_stdout.log"
    log.write_text("12 tokens/s, key=value\n" * 3)
    before = log.stat()
    clean_logs(tmp_path, launch_secrets(campaign.engine, campaign.connector("plain")))
    assert (log.stat().st_ino, log.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [p.name for p in tmp_path.iterdir()] == [log.name]


def test_a_secret_at_the_end_of_a_piece_of_a_log_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log is gone through in pieces; none of them ends in the middle of a key, of a block or of a long line's secret."""
    # An eighth of the real one: only what lies within NEAR_CHARS of a piece's end decides.
    chunk = 1 << 19
    monkeypatch.setattr(logs, "CHUNK_CHARS", chunk)
    log, line = tmp_path / "vllm_stderr.log", "line of a log that says nothing at all\n"
    body = (line * (chunk // len(line) + 1))[: chunk - NEAR_CHARS - 60] + "\n"
    key = "-----BEGIN PRIVATE KEY-----\n" + "Zq8vT2xLk9Rw4n\n" * 20 + "-----END PRIVATE KEY-----\n"
    block = "redis_password: |\n" + "  Zq8v T2xLk9Rw4n\n" * 20
    for text in (key, block):
        log.write_text(body + text + line * 3000)
        clean_logs(tmp_path, frozenset())
        assert "T2xLk9Rw4n" not in log.read_text() and log.read_text().endswith(line * 3000)
    long = "a" * (chunk - NEAR_CHARS - 6)
    log.write_text(f"{long} Zq8vT2xLk9Rw4n{long} password=Zq8vT2x{long}\n")
    clean_logs(tmp_path, frozenset(["Zq8vT2xLk9Rw4n"]))
    assert log.read_text() == f"{long} {BLANKED}{long} password={BLANKED}\n"


def test_the_end_of_a_log_begins_with_a_whole_line(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOG_TAIL_BYTES", 40)
    (tmp_path / "vllm_stderr.log").write_text(
        "logging in with planted-3-planted-3\n" + "RuntimeError: no\n" * 2
    )
    assert process._tail(tmp_path / "vllm_stderr.log") == "RuntimeError: no\n" * 2


def recorded(tmp_path: Path, *arguments: str, **variables: str) -> str:
    """``launch.sh`` of a launch by hand."""
    out = tmp_path / "launch.sh"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/",
        "MODEL": "m",
        "ENGINE_PYTHON": "echo",
        "LAUNCH_SH_OUT": str(out),
    }
    script = PROJECT_ROOT / "launch" / "launch_any.sh"
    kv = variables.pop("KV_TRANSFER_CONFIG", '{"kv_connector": "X"}')
    given = {**environment, "KV_TRANSFER_CONFIG": kv, **variables}
    subprocess.run(["bash", str(script), *arguments], env=given, check=True, capture_output=True)
    return out.read_text()


def run_by_hand(tmp_path: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    bare = {"PATH": os.environ["PATH"], "HOME": "/", **variables}
    return subprocess.run(
        ["bash", str(tmp_path / "launch.sh")], env=bare, cwd=PROJECT_ROOT, capture_output=True, text=True
    )


def test_a_runs_script_refers_to_the_variable_that_held_the_secret(tmp_path: Path) -> None:
    kv = '{"kv_connector": "X", "redis": {"password": "open sesame"}}'
    text = recorded(tmp_path, "--seed", "1", KV_TRANSFER_CONFIG=kv, MY_PW="open sesame")
    assert "open sesame" not in text and '"${MY_PW}"' in text
    refused = run_by_hand(tmp_path)
    assert refused.returncode != 0 and refused.stderr.strip().endswith("set MY_PW") and refused.stdout == ""
    given = '--kv-transfer-config={"kv_connector": "X", "redis": {"password": "it\'s $HOME `id`"}} --served'
    assert given in run_by_hand(tmp_path, MY_PW="it's $HOME `id`").stdout


def test_two_secrets_of_one_name_are_two_variables(tmp_path: Path) -> None:
    recorded(
        tmp_path,
        "--api-key",
        "first-1",
        "--hf-token",
        "second",
        "--x",
        '{"api_key": "third-3"}',
        HF_TOKEN="another",
    )
    given = {"VLLM_API_KEY": "1", "ENGINE_HF_TOKEN": "2", "VLLM_API_KEY_2": "3"}
    done = run_by_hand(tmp_path, **given)
    assert '--api-key 1 --hf-token 2 --x {"api_key": "3"}' in done.stdout, done.stderr


def test_a_known_secret_stands_nowhere_else_in_a_runs_script(tmp_path: Path) -> None:
    """In a variable that is written out, in an argument, in the comment, and in a folder's name."""
    secret = "Q7,T2xLk9Rw4nQw"
    (tmp_path / secret).mkdir()
    (tmp_path / secret / "python").symlink_to("/bin/echo")
    given = {
        "HF_ENDPOINT": f"http://mirror/{secret}/x",
        "PYTHONPATH": f"/a/{secret}",
        "REDIS_PASSWORD": secret,
    }
    given["ENGINE_PYTHON"] = str(tmp_path / secret / "python")
    arguments = [f"--redis-password={secret}", "--remote", f"lm://h/{secret}"]
    text = recorded(
        tmp_path, *arguments, **given, RECORD_NEEDED="REDIS_PASSWORD", RECORD_PYTHON=sys.executable
    )
    assert "T2xLk9Rw4nQw" not in text and "ENGINE_REDIS" not in text
    assert 'export HF_ENDPOINT=http://mirror/"${REDIS_PASSWORD}"/x\n' in text
    done = run_by_hand(tmp_path, REDIS_PASSWORD="it's $HOME", ENGINE_PYTHON="echo")
    assert done.stdout.strip().endswith("--redis-password=it's $HOME --remote lm://h/it's $HOME"), done.stderr


def test_a_secret_that_was_inherited_is_asked_for_where_it_stands_elsewhere(tmp_path: Path) -> None:
    text = recorded(
        tmp_path, "--remote", "lm://h/T2xLk9Rw4nQw", HF_TOKEN="T2xLk9Rw4nQw", LMCACHE_X="T2xLk9Rw4nQw"
    )
    assert "T2xLk9Rw4nQw" not in text and ': "${HF_TOKEN:?' in text and "HF_TOKEN was set as well" not in text
    assert 'export LMCACHE_X="${HF_TOKEN}"\n' in text
    assert "lm://h/x" in run_by_hand(tmp_path, HF_TOKEN="x").stdout


def test_what_the_config_refers_to_is_a_secret_also_where_it_is_a_word(
    campaign: CampaignConfig, tmp_path: Path
) -> None:
    """``DSN: ${DB_PASSWORD}`` stood in launch.sh as DSN=mooncake, since a word of eight letters is known nowhere by itself."""
    config = with_engine(campaign, env={"DSN": "u:${DB_PASSWORD}"}, extra_args=("--store", "${DB_PASSWORD}"))
    told = referring(config.engine, config.connector("plain"))
    assert told == ["${DB_PASSWORD}", "u:${DB_PASSWORD}"]
    given = {"DB_PASSWORD": "mooncake", "DSN": "u:mooncake", "LMCACHE_X": "mooncakes"}
    record = {"RECORD_NEEDED": "DSN", "RECORD_REFERRING": json.dumps([*told, "${NOT_SET}"])}
    text = recorded(tmp_path, "--store", "mooncake", **given, **record)
    assert 'export DSN=u:"${DB_PASSWORD}"\n' in text and 'exec "$ENGINE_PYTHON"' in text
    assert text.count("mooncake") == 1 and "export LMCACHE_X=mooncakes\n" in text
    assert "--store other" in run_by_hand(tmp_path, DB_PASSWORD="other").stdout


def test_what_the_config_refers_to_is_a_secret_also_within_a_word_and_beside_another(tmp_path: Path) -> None:
    """``DSN=app_mooncake`` stood in launch.sh, and ``# DSN was``, without the token, with the other secret."""
    values = {"DB_PASSWORD": "mooncake", "A_TOKEN": "hf_abcdefghijklmnopqrstuv", "ON": "1"}
    given = {"DSN": "app_mooncake1", "BOTH": "api_key=hf_abcdefghijklmnopqrstuv; db_mooncake", **values}
    told = ["app_${DB_PASSWORD}${ON}", "api_key=${A_TOKEN}; db_${DB_PASSWORD}", 'a"_${DB_PASSWORD}']
    record = {"RECORD_NEEDED": "DSN BOTH", "RECORD_REFERRING": json.dumps(told)}
    text = recorded(tmp_path, json.dumps({"at": 'a"_mooncake'}), **given, **record)
    assert "mooncake" not in text and 'export DSN=app_"${DB_PASSWORD}"1\n' in text
    assert "# BOTH was api_key=" in text
    assert 'a\\"_other' in run_by_hand(tmp_path, DB_PASSWORD="other", BOTH="x", ENGINE_PYTHON="echo").stdout


@pytest.mark.parametrize("word", ["a_${ONE}${TWO}_b", "a_${TWO}${ONE}_b", "a_${ONE}${TWO}${THREE}_b"])
def test_what_is_left_of_a_word_whose_other_secret_is_known_is_one_as_well(word: str) -> None:
    """The one that chance drew was replaced first, and behind it stood ``mooncake_b``, which no reference of the config is alone."""
    values = {"ONE": "mooncake", "TWO": "Wq7xK2mPz9tR", "THREE": "lmcache"}
    given = {"ONE_TOKEN": "mooncake", "TWO_TOKEN": "Wq7xK2mPz9tR", **values}
    text = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], word)
    told = fields(["x", text], {**given, "RECORD_REFERRING": json.dumps([word])})
    assert not any(secret in field for field in told for secret in values.values())
    assert [field for field in told if field in values or field in ("a_", "_b")][:1] == ["a_"]


def test_what_the_config_sets_is_asked_for_and_what_was_inherited_is_told(tmp_path: Path) -> None:
    text = recorded(
        tmp_path, HF_TOKEN="abc", LMCACHE_URL="redis://u:pw@h/0", RECORD_NEEDED="LMCACHE_URL ANY", ANY="a b"
    )  # fmt: skip
    assert "# HF_TOKEN was set as well, to a secret that is not kept." in text and "abc" not in text
    assert (
        '# LMCACHE_URL was redis://\\<redacted\\>@h/0\n: "${LMCACHE_URL:?' in text
        and "export ANY=a\\ b\n" in text
    )
    assert run_by_hand(tmp_path, LMCACHE_URL="x").returncode == 0


def test_nothing_is_recorded_where_nobody_can_tell_what_is_secret(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        recorded(tmp_path, "--db-password", "planted-4", RECORD_PYTHON="false")
    assert (
        b"launch.sh is not written" in caught.value.stderr
        and "planted-4" not in (tmp_path / "launch.sh").read_text()
    )


def test_who_was_killed_while_it_told_secrets_is_named_so(tmp_path: Path) -> None:
    """Preflight tries an engine once more whose start was killed: the words say that it was, and nothing redacts them."""
    killed = tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError) as caught:
        recorded(tmp_path, RECORD_PYTHON=str(killed))
    said = caught.value.stderr.decode().strip().splitlines()[-1]
    assert said.startswith("error: launch.sh is not written: ") and said.endswith(", was killed by SIGKILL")
    assert root_cause(said) == said == published_text(said)
    assert any(word in said for word in KILLED)


def test_a_word_that_looks_like_a_placeholder_of_ours_stays_text() -> None:
    assert fields(["\ue000HOME\ue000"], {}) == ["word 1", "\ue000HOME\ue000", "end"]


def test_a_log_is_gone_through_also_where_an_engine_does_not_end(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in a container whose daemon hangs: what is left is told, and nothing may be left to launch here for."""
    config = with_engine(campaign, env={**campaign.engine.env, "HF_TOKEN": "planted-token-1"})
    stop = process.stop_supervised

    def stopped(*given: Any, **named: Any) -> None:
        stop(*given, **named)
        raise EngineError("container connector-tax-m may still be there")

    monkeypatch.setattr(process, "stop_supervised", stopped)
    log = tmp_path / "vllm_stderr.log"
    with (
        pytest.raises(EngineError, match="may still be there"),
        running_engine(LaunchRequest(config.engine, config.connector("plain"), tmp_path)),
    ):
        log.write_text("the token is planted-token-1\n")
    assert "planted-token-1" not in log.read_text()
