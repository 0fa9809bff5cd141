"""What is blanked, and what is not: by name, by look, inside of other things."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector_tax.base.files import read_json, to_json, write_json, write_text_if_changed
from connector_tax.base.redaction import (
    BLANKED,
    published,
    redacted,
    redacted_text,
    secrets_in,
    secrets_of,
    without,
)
from connector_tax.base.secret_looks import FLAG, NAME
from connector_tax.base.secret_names import is_secret_name

SECRET_NAMES = [
    "api_key",
    "api-key",
    "apiKey",
    "APIKEY",
    "VLLM_API_KEY",
    "engine.args.api_key",
    "openai_key",
    "hf_token",
    "HF_TOKEN",
    "hf-token",
    "HUGGING_FACE_HUB_TOKEN",
    "password",
    "redisPassword",
    "db_passwd",
    "REDIS_PW",
    "passphrase",
    "ssh_pass",
    "user_pwd",
    "secret",
    "client-secret",
    "SECRET_KEY_BASE",
    "credential",
    "credentials",
    "AWS_SHARED_CREDENTIALS",
    "auth",
    "basic_auth",
    "http-auth",
    "Authorization",
    "auth_token",
    "oauth",
    "private_key",
    "PRIVATE-KEY",
    "privateKey",
    "access_key",
    "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key",
    "account_key",
    "signing_key",
    "token",
    "api_tokens",
    "GITLAB_TOKEN",
    "jwt",
    "cookie",
]
ORDINARY_NAMES = [
    "token_id_low",
    "token_id_high",
    "max_num_batched_tokens",
    "input_tokens",
    "output_tokens",
    "max_tokens",
    "cached_tokens",
    "tokens",
    "tokens_per_s",
    "token_s",
    "per_token_us",
    "eos_token",
    "pad_token",
    "num_token",
    "tokenizer",
    "skip_tokenizer_init",
    "hf_tokenizer",
    "author",
    "authority",
    "XAUTHORITY",
    "key",
    "keys",
    "monkey",
    "keyboard",
    "cache_key",
    "prefix_caching_hash_key",
    "prefix_caching_hash_algo",
    "sort_key",
    "public_key",
    "hf_overrides",
    "pass_config",
    "passes",
    "compass",
    "SSH_AUTH_SOCK",
    "PASSWORD_FILE",
    "private_key_path",
    "token_url",
    "secret_name",
    "auth_mode",
    "launch_hash",
    "spec_hash",
    "t_first_token_ns",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_what_stands_under_a_secrets_name_is_blanked(name: str) -> None:
    assert redacted({name: "x1y2"}) == {name: BLANKED}
    assert redacted([f"--{name}", "x1y2", "--port", "8000"]) == [f"--{name}", BLANKED, "--port", "8000"]
    for text in (f"--{name}=x1y2", f"{name}=x1y2 b=2", f'"{name}": "x1y2"', f"'{name}': 'x1y2'"):
        assert redacted_text(text) == text.replace("x1y2", BLANKED)


@pytest.mark.parametrize("name", ORDINARY_NAMES)
def test_an_ordinary_setting_is_left_as_it_is(name: str) -> None:
    value = {name: "x1y2"}
    assert (
        redacted(value) == value
        and redacted_text(f"--{name} x1y2 {name}=x1y2") == f"--{name} x1y2 {name}=x1y2"
    )
    assert redacted([f"--{name}", "x1y2"]) == [f"--{name}", "x1y2"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("hf_AbCdEfGhIjKlMnOpQr", BLANKED),
        ("x hf_AbCdEfGhIjKlMnOpQr, y", f"x {BLANKED}, y"),
        ("sk-proj-abc123DEF456", BLANKED),
        ("ghp_abcdefgh12345678", BLANKED),
        ("github_pat_11ABCDEFG0abcdefgh", BLANKED),
        ("AKIAIOSFODNN7EXAMPLE", BLANKED),
        ("ASIAIOSFODNN7EXAMPLE", BLANKED),
        ("xoxb-1234567890-abcdef", BLANKED),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", BLANKED),
        ("a -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- b", f"a {BLANKED} b"),
        ("Authorization: Bearer abc.def-123", f"Authorization: {BLANKED}"),
        ("Authorization: ApiKey Zq8vT2xLk9Rw4n", f"Authorization: {BLANKED}"),
        ("Authorization: Splunk Zq8vT2xLk9Rw4n", f"Authorization: {BLANKED}"),
        ("sent 'Bearer abcdef123'", f"sent 'Bearer {BLANKED}'"),
        ("redis://user:p%40ss@host:6379/0", f"redis://{BLANKED}@host:6379/0"),
        ("redis://:pa/ss@host", f"redis://{BLANKED}@host"),
        ("https://0123456789abcdef@host/x", f"https://{BLANKED}@host/x"),
        ("https://h/x?sig=0123456789&v=1", f"https://h/x?sig={BLANKED}&v=1"),
        ("docker -e HF_TOKEN=abc", f"docker -e HF_TOKEN={BLANKED}"),
        ("run --api-key abc --port 1", f"run --api-key {BLANKED} --port 1"),
        ("non-default args: {'api_key': ['abc'], 'port': 1}", f"non-default args: {{'api_key': [{BLANKED}], 'port': 1}}"),
        ("Namespace(hf_token='a\\'b', seed=0)", f"Namespace(hf_token='{BLANKED}', seed=0)"),
        ('said {\\"password\\": \\"abc\\"}', f'said {{\\"password\\": \\"{BLANKED}\\"}}'),
        ('api_key: "abc', f'api_key: "{BLANKED}'),
    ],
)  # fmt: skip
def test_a_secret_is_known_by_its_look_or_by_what_stands_before_it(text: str, shown: str) -> None:
    assert redacted_text(text) == shown
    assert redacted({"note": [text]}) == {"note": [shown]}


@pytest.mark.parametrize(
    "text",
    [
        "Avg prompt throughput: 12.0 tokens/s, Running: 1 reqs",
        "JSONDecodeError: unexpected token: foo",
        "task-scheduler disk-cache hf_transfer hf_overrides risk-based-1",
        "http://127.0.0.1:8000/v1/models and tcp://localhost:5555 and git@host:a/b",
        "--api-key ${VLLM_API_KEY} password=${PW} redis://u:${PW}@h",
        "Namespace(api_key=None, hf_token=True, enable_auth=False)",
        "KeyError: 'layers'",
        "Bearer authentication is on",
        "export HF_HUB_DISABLE_IMPLICIT_TOKEN=1",
        "PyJWT==2.10.1",
        "jwt==1.4.0rc1",
    ],
)
def test_a_line_without_a_secret_is_left_as_it_is(text: str) -> None:
    assert redacted_text(text) == text


def test_secrets_are_found_in_lists_in_mappings_and_in_json_that_is_text() -> None:
    inner = json.dumps({"auth": {"user": "u", "n": 3}, "seed": 7})
    value = {
        "kv_connector_extra_config": {
            "servers": [{"host": "h", "access_key": "a"}],
            "inner": inner,
            "on": True,
        }
    }
    clean = redacted(value)["kv_connector_extra_config"]
    assert clean["servers"] == [{"host": "h", "access_key": BLANKED}] and clean["on"] is True
    assert json.loads(clean["inner"]) == {"auth": {"user": BLANKED, "n": BLANKED}, "seed": 7}
    assert redacted({"name": "HF_TOKEN", "value": "x"}) == {"name": "HF_TOKEN", "value": BLANKED}
    assert redacted([["X-Api-Key", "x"], ["Accept", "y"]]) == [["X-Api-Key", BLANKED], ["Accept", "y"]]


def test_json_without_a_secret_keeps_its_bytes() -> None:
    text = '{"kv_connector":"X",  "block_size": 16}'
    assert redacted(text) == text


@pytest.mark.parametrize("value", [True, False, None, "", "none", "auto", "${HF_TOKEN}", BLANKED, "EMPTY"])
def test_what_opens_nothing_is_shown_under_any_name(value: Any) -> None:
    assert redacted({"hf_token": value, "password": value}) == {"hf_token": value, "password": value}


NAMES = st.sampled_from([*SECRET_NAMES, *ORDINARY_NAMES])
TEXTS = st.one_of(
    st.text(max_size=30),
    st.builds("{}{}{}".format, NAMES, st.sampled_from(["=", ": ", " ", '": "', "='"]), st.text(max_size=12)),
)
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)


@given(VALUES)
def test_redacting_twice_changes_nothing(value: Any) -> None:
    once = redacted(value)
    assert redacted(once) == once


def test_a_known_secret_is_found_where_nothing_tells_it() -> None:
    known = secrets_in(
        {
            "password": "hunter2+x/y",
            "url": "redis://u:letmein1@h",
            "header": {"Authorization": "Bearer zyx-987"},
        }
    )
    for text in ("hunter2+x/y", "hunter2%2Bx%2Fy", "with letmein1.", "zyx-987"):
        assert BLANKED in without(f"connecting {text}", known)
    assert without("connecting", known) == "connecting"


def test_words_and_short_numbers_are_not_taken_for_a_known_secret() -> None:
    known = secrets_in({"password": "cache", "api_key": "123456"})
    assert known and without("cache of 123456 tokens", known) == "cache of 123456 tokens"


def test_the_environment_tells_its_own_secrets_and_those_that_the_config_refers_to() -> None:
    config = json.dumps({"kv_transfer_config": {"password": "${ANY_NAME}"}})
    environment = {
        "CONNECTOR_TAX_CONFIG": config,
        "ANY_NAME": "opensesame1",
        "HF_TOKEN": "abcdef1",
        "HOME": "/home/someone",
    }
    assert secrets_of(environment) == {"opensesame1", "abcdef1"}


def test_what_is_stored_holds_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PASSWORD", "opensesame1")
    assert published({"reason": "cannot log in with opensesame1"}) == {
        "reason": f"cannot log in with {BLANKED}"
    }


def test_a_secret_that_is_no_utf8_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable may hold any bytes."""
    monkeypatch.setenv("SOME_PASSWORD", os.fsdecode(b"open\xffsesame1"))
    assert published({"reason": "open\udcffsesame1"}) == {"reason": BLANKED}


def test_names_are_read_as_words() -> None:
    assert (
        is_secret_name("s3SecretAccessKey")
        and not is_secret_name("secretary_path")
        and not is_secret_name("")
    )


def test_a_connector_that_is_called_like_a_secret_keeps_its_measurements(tmp_path: Path) -> None:
    """``nixl_auth`` is an id that a person may choose; what a user configured under such a name is blanked all the same."""
    of_one = {"label": "NIXL", "status": "measured", "throughput_ratio": 0.97, "decision": "include"}
    kv = {"kv_connector": "NixlConnector", "credentials": {"user": "u", "pass": "p1"}, "db_password": 12345}
    value = {
        "configs": {"nixl_auth": of_one},
        "spec_hashes": {"nixl_auth": "0123456789abcdef", "redis_key": 7},
        "config": {"connectors": [{"id": "nixl_auth", "kv_transfer_config": kv}]},
    }
    for write in (write_json, lambda path, value: write_text_if_changed(path, to_json(value))):
        write(tmp_path / "a.json", value)
        stored = read_json(tmp_path / "a.json")
        assert stored["configs"] == value["configs"] and stored["spec_hashes"] == value["spec_hashes"]
        assert stored["config"]["connectors"][0]["kv_transfer_config"] == {
            "kv_connector": "NixlConnector",
            "credentials": {"user": BLANKED, "pass": BLANKED},
            "db_password": BLANKED,
        }


def test_a_connector_that_is_called_like_a_secret_has_none_known_elsewhere() -> None:
    config = {"connectors": {"nixl_auth": {"label": "NIXL over UCX1", "env": {"HF_TOKEN": "abcdef1"}}}}
    assert secrets_of({"CONNECTOR_TAX_CONFIG": json.dumps(config)}) == {"abcdef1"}


@pytest.mark.parametrize(
    "word", ["mooncake", "measured", "lmcache_only", "phase_b1", "noop_connector_same_shape"]
)
def test_a_secret_that_is_a_word_of_ours_changes_no_key_id_or_state(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", word)
    value = {word: {"status": word, "connector": word, "n": 1}, f"{word}_both": {"cell_id": f"{word}_both"}}
    assert published(value) == value
    assert published({"env": {"REDIS_PASSWORD": word}}) == {"env": {"REDIS_PASSWORD": BLANKED}}


def test_a_known_secret_is_a_whole_word_unless_it_was_drawn_by_chance() -> None:
    known = secrets_in({"password": "abcd1234", "api_key": "Zq9xK2mN4pL7", "token": "correcthorsebattery"})
    text = "abcd1234 x_abcd1234 abcd12345 (abcd1234) a\\nabcd1234 xZq9xK2mN4pL7y correcthorsebattery"
    assert without(text, known) == (
        f"{BLANKED} x_abcd1234 abcd12345 ({BLANKED}) a\\n{BLANKED} x{BLANKED}y {BLANKED}"
    )


@pytest.mark.parametrize("part", ["a--", ".-a", "a.-"])
def test_no_name_begins_inside_of_another(part: str) -> None:
    """Where each did, a line was read once for each of its parts: 4 s for 15 kB."""
    line = part * 200
    assert redacted_text(f"key {line}") == f"key {line}"
    for pattern in (NAME, FLAG):
        heads = re.compile(pattern.pattern.split("(?P<sep>")[0])
        assert sum(heads.match(line, at) is not None for at in range(len(line))) <= 1


@pytest.mark.parametrize(
    "name",
    [
        *("storage_key", "AZURE_STORAGE_KEY", "tls_key", "ssl_key", "rsa_key", "session_key", "LMCACHE_REMOTE_KEY"),
        *("minio_pass", "pass-word", "requirepass", "masterauth", "userpass", "sessiontoken"),
        *("SLURM_JWT", "PBS_JOBCOOKIE", "FLUX_TOKEN"),
    ],
)  # fmt: skip
def test_more_names_of_secrets(name: str) -> None:
    assert redacted({name: "x1y2"}) == {name: BLANKED}


@pytest.mark.parametrize(
    "name", ["hash_key", "primary_key", "block_key", "kv_cache_key", "prefix_key", "think_token"]
)
def test_more_ordinary_names(name: str) -> None:
    assert redacted({name: "x1y2"}) == {name: "x1y2"}


@pytest.mark.parametrize(
    "text",
    [
        *("redis:\n  password: |\n    S-1\n  b: 1", "password: >-\n  S-1", 'password="""S-1"""', "password=b'S-1'"),
        *("password    =     S-1", "--api-key     S-1", "--api-key \\\n   S-1", "<password>S-1</password>"),
        r"\{\"redis_password\":\ \"S-1\"\}",
    ],
)  # fmt: skip
def test_more_ways_to_write_a_secret_behind_its_name(text: str) -> None:
    assert redacted_text(text) == text.replace("S-1", BLANKED)
    assert redacted_text(text.replace("S-1", BLANKED)) == text.replace("S-1", BLANKED)


@pytest.mark.parametrize(
    "secret",
    [
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nMHc\n-----END PGP PRIVATE KEY BLOCK-----",
        *("sk" + "_live_4eC39HqLyjWDarjtT1zdp7dc", "hvs.CAESIabcdefghijklmnop", "dckr_pat_abcdefgh12345678"),
    ],
)
def test_more_looks_of_secrets(secret: str) -> None:
    assert redacted_text(f"x {secret} y") == f"x {BLANKED} y"


def test_the_address_of_a_slack_hook_is_a_secret() -> None:
    head = "https://hooks.slack.com/services/"
    assert redacted_text(f"{head}T00/B00/XXXXXXXX") == f"{head}{BLANKED}"


def test_the_value_of_an_entry_is_blanked_in_any_case_of_its_keys() -> None:
    assert redacted([{"Name": "DB_PASSWORD", "Value": "x"}]) == [{"Name": "DB_PASSWORD", "Value": BLANKED}]


@pytest.mark.parametrize(
    "text",
    [
        *("model /mnt/hf_checkpoints2/Qwen", "/models/hf_llama31instruct", "rdma://10.0.0.1:12345?dev=mlx5_0@numa1"),
        *("x sk-linear-attention-kernel-v2", "think_token: '<think>'", "accuracy pass=3 of 4"),
    ],
)  # fmt: skip
def test_more_that_is_no_secret(text: str) -> None:
    assert redacted_text(text) == text
