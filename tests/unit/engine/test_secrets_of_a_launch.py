"""What an engine is given in secret: neither launch.sh nor its logs keep it, and our own requests carry its key."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from cell_specs import cell_spec
from launches import by_hand, launch_of
from msgspec.structs import replace

from connector_tax.base.config import CampaignConfig, load_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.base.records.target import bearing, target_of
from connector_tax.base.secrets import MASKED, REFERRED_VARIABLE, know_references
from connector_tax.run.engine import process, supervised
from connector_tax.run.engine.command import api_key, engine_arguments, engine_environment
from connector_tax.run.engine.gpus import Cards
from connector_tax.run.engine.process import LaunchError, LaunchRequest, running_engine
from connector_tax.run.engine.supervised import clean_logs
from connector_tax.run.loadgen.cell import collect_outputs, measure_cell
from connector_tax.run.measure.checks import ask


@pytest.fixture
def campaign() -> CampaignConfig:
    return load_campaign(PROJECT_ROOT / "config" / "demo.yaml")


def with_engine(campaign: CampaignConfig, **changes: Any) -> CampaignConfig:
    return replace(campaign, engine=replace(campaign.engine, **changes))


@pytest.mark.parametrize("where", ["args", "inherited"])
def test_an_engine_that_asks_for_a_key_is_asked_with_it(
    where: str, campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readiness, warm-up, the accuracy pass and the load; a stranger without it is refused."""
    given = {
        "args": {"args": {**campaign.engine.args, "api_key": "${MY_KEY}"}},
        "inherited": {},
    }[where]
    monkeypatch.setenv("VLLM_API_KEY" if where == "inherited" else "MY_KEY", "planted-key-1")
    know_references({} if where == "inherited" else "${MY_KEY}")
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
    by_env = with_engine(campaign, env={"VLLM_API_KEY": "planted-key-2"})
    assert api_key(by_env.engine, plain) == "planted-key-2"


@pytest.mark.parametrize("key", ["planted\nkey", "planted-\udcff"])
def test_a_key_that_no_header_carries_is_one_message_without_the_key(
    campaign: CampaignConfig, key: str
) -> None:
    config = with_engine(campaign, args={"api_key": key})
    with pytest.raises(ConfigError, match="no HTTP header can carry") as told:
        api_key(config.engine, config.connector("plain"))
    assert key not in str(told.value)


def test_the_names_of_references_do_not_reach_the_engine(
    campaign: CampaignConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REFERRED_VARIABLE, "ANY")
    assert REFERRED_VARIABLE not in engine_environment(
        campaign.engine, campaign.connector("plain"), Cards((), 0)
    )


def test_what_this_launch_or_a_killed_one_printed_is_gone_from_its_log_and_its_cause(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "planted-2")
    monkeypatch.setenv("REDIS_PASSWORD", "planted-3")
    (tmp_path / "vllm_stderr.log").write_bytes(b"logging in with planted-3\n\xff\xfe as it was\r\n")
    config = with_engine(
        campaign, extra_args=("--db-password", "${DB_PASSWORD}", "--note", "RuntimeError: ${DB_PASSWORD}")
    )
    request = LaunchRequest(config.engine, config.connector("plain"), tmp_path, fault="die_at_start")
    with pytest.raises(LaunchError) as caught, running_engine(request) as engine:
        engine.wait_ready()
    log = (tmp_path / "vllm_stdout.log").read_text()
    assert "planted-2" not in log + str(caught.value) and f"'--db-password', '{MASKED}'" in log
    earlier = (tmp_path / "vllm_stderr.log").read_bytes()
    assert earlier.startswith(b"logging in with <redacted>\n\xff\xfe as it was\r\n")


def test_a_secret_at_the_end_of_a_piece_of_a_log_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log is gone through in pieces, each of whole lines; one of a secret with several lines is masked by itself."""
    key = "-----BEGIN PRIVATE KEY-----\n" + "Zq8vT2xLk9Rw4nQ1\n" * 3 + "-----END PRIVATE KEY-----"
    monkeypatch.setenv("SIGNING_KEY", key)
    monkeypatch.setenv("DB_PASSWORD", "Kd7fHsQ1Zq8vT2xL")
    monkeypatch.setattr(supervised, "PIECE_CHARS", 50)
    log = tmp_path / "vllm_stderr.log"
    log.write_text(f"{'a' * 45} Kd7fHsQ1Zq8vT2xL b\r\n{key}\n" * 20)
    clean_logs(tmp_path)
    assert (
        "T2xL" not in log.read_text() and log.read_bytes().count(f"{'a' * 45} {MASKED} b\r\n".encode()) == 20
    )


def test_the_end_of_a_log_begins_with_a_whole_line(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOG_TAIL_BYTES", 40)
    (tmp_path / "vllm_stderr.log").write_text(
        "logging in with planted-3-planted-3\n" + "RuntimeError: no\n" * 2
    )
    assert process._tail(tmp_path / "vllm_stderr.log") == "RuntimeError: no\n" * 2


Recorded = Callable[..., str]


@pytest.fixture
def recorded(campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """``launch.sh`` of a launch with these arguments, ``env`` of the config and variables around us."""

    def write(
        *arguments: str,
        env: dict[str, str] | None = None,
        kv: Any = None,
        python: str = "/bin/echo",
        **around: str,
    ) -> str:
        for name, value in around.items():
            monkeypatch.setenv(name, value)
        given = {"kind": "vllm", "model": "m", "python": python, "args": {}, "extra_args": arguments}
        config = with_engine(campaign, **given, env=env or {})
        connector = replace(config.connector("nixl_both"), kv_transfer_config=kv or {"kv_connector": "X"})
        (tmp_path / "launch.sh").write_text(launch_of(config.engine, connector).script(connector))
        return (tmp_path / "launch.sh").read_text()

    return write


def test_a_known_secret_stands_nowhere_else_in_a_runs_script(recorded: Recorded, tmp_path: Path) -> None:
    """In a variable that is written out, in an argument, in the comment, and in a folder's name."""
    secret = "Q7,T2xLk9Rw4nQw"
    (tmp_path / secret).mkdir()
    (tmp_path / secret / "python").symlink_to("/bin/echo")
    text = recorded(
        "--redis-password=${REDIS_PASSWORD}", "--remote", "lm://h/${REDIS_PASSWORD}", "--x", f"in/{secret}",
        env={"HF_ENDPOINT": "http://mirror/${REDIS_PASSWORD}/x"}, python=str(tmp_path / secret / "python"),
        REDIS_PASSWORD=secret, PYTHONPATH=f"/a/{secret}", LMCACHE_X=secret,
    )  # fmt: skip
    assert "T2xLk9Rw4nQw" not in text and "# Not kept, since each was secret: LMCACHE_X." in text
    assert 'export HF_ENDPOINT=http://mirror/"$REDIS_PASSWORD"/x\n' in text
    given = {"REDIS_PASSWORD": "it's $HOME", "SECRET": "y", "ENGINE_PYTHON": "echo"}
    done = by_hand(tmp_path / "launch.sh", **given)
    assert done.stdout.strip().endswith("--redis-password=it's $HOME --remote lm://h/it's $HOME --x in/y")


def test_what_the_config_refers_to_is_a_secret_also_within_a_word_and_beside_another(
    recorded: Recorded, tmp_path: Path
) -> None:
    """``DSN=app_mooncake`` stood in launch.sh."""
    values = {"DB_PASSWORD": "mooncake", "A_TOKEN": "hf_abcdefghijklmnopqrstuv", "ON": "1"}
    env = {"DSN": "app_${DB_PASSWORD}${ON}", "BOTH": "${A_TOKEN}; db_${DB_PASSWORD}"}
    text = recorded(json.dumps({"at": 'a"_${DB_PASSWORD}'}), env=env, **values)
    assert "mooncake" not in text and "hf_" not in text
    assert (
        'export DSN=app_"$DB_PASSWORD""$ON"\n' in text
        and 'export BOTH="$A_TOKEN"\'; db_\'"$DB_PASSWORD"\n' in text
    )
    given = {**values, "DB_PASSWORD": "other"}
    assert 'a\\"_other' in by_hand(tmp_path / "launch.sh", **given).stdout


@pytest.mark.parametrize("word", ["a_${TWO}${ONE}_b", "a_${ONE}${TWO}${THREE}_b"])
def test_no_piece_of_a_word_of_secrets_is_kept(recorded: Recorded, word: str) -> None:
    values = {"ONE": "mooncake", "TWO": "Wq7xK2mPz9tR", "THREE": "lmcache"}
    text = recorded("--x", word, ONE_TOKEN="mooncake", TWO_TOKEN="Wq7xK2mPz9tR", **values)
    assert not any(secret in text for secret in values.values())


def test_a_log_is_gone_through_also_where_an_engine_does_not_end(
    campaign: CampaignConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in a container whose daemon hangs: what is left is told, and nothing may be left to launch here for."""
    monkeypatch.setenv("HF_TOKEN", "planted-token-1")
    config = campaign
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
