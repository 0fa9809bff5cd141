"""What is blanked, and what is not: by name, by look, inside of other things."""

import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector_tax.redaction import (
    BLANKED,
    is_secret_name,
    published,
    redacted,
    redacted_text,
    secrets_in,
    secrets_of,
    without,
)

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
