"""Known secrets are masked wherever they are written, and nothing else is."""

import os
from pathlib import Path
from typing import Any

import pytest

from connector_tax.base.files import read_json, to_json, write_json, write_text
from connector_tax.base.secrets import (
    MASKED,
    excerpt,
    format_in,
    is_secret_name,
    know_references,
    masked,
    masked_values,
    secrets_of,
    without,
)

SECRET = "Zq8vT2xLk9Rw4nBd7fHsQ1"


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "api-key", "apiKey", "APIKEY", "VLLM_API_KEY", "OPENAI_API_KEYS", "hf_token", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"),
        *("password", "redisPassword", "REDIS_PASSWORD_2", "db_passwd", "REDIS_PW", "passphrase", "ssh_pass", "requirepass", "user_pwd"),
        *("secret", "client-secret", "SECRET_KEY_BASE", "credential", "AWS_SHARED_CREDENTIALS", "s3SecretAccessKey", "AWS_SECRET_ACCESS_KEY"),
        *("auth", "LMCACHE_AUTH", "Authorization", "auth_token", "private_key", "PRIVATE-KEY", "AZURE_STORAGE_KEY", "SLURM_JWT", "PBS_JOBCOOKIE"),
    ],
)  # fmt: skip
def test_a_name_tells_of_a_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("", "PWD", "OLDPWD", "SSH_AUTH_SOCK", "HF_TOKEN_PATH", "secret_name", "password_file", "AWS_WEB_IDENTITY_TOKEN_FILE", "TOKENIZERS_PARALLELISM"),
        *("input_tokens", "max_num_batched_tokens", "bos_token", "eos_token", "output_token", "token_id_low", "cache_key", "sort_key", "hash_key", "keys"),
        *("author", "ssl_keyfile", "passes", "bypass", "XAUTHORITY", "monkey", "turkey", "authenticate", "CREDENTIALS_DIRECTORY", "KEEP_ALIVE"),
    ],
)  # fmt: skip
def test_a_name_tells_of_no_secret(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "text",
    [
        *("-----BEGIN RSA PRIVATE KEY-----\nMHc", "redis://:pw1@h", "https://me:pw1@hub/model", "https://h/x?X-Amz-Signature=0123456789abcdef0123"),
        *("Authorization: Bearer zyx-987-abc", "Basic dXNlcjpwYXNzdzByZA==", "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "hf_" + "aB3" * 11 + "x"),
        *("sk-proj-abcdef0123456789abcdef", "gh" + "p_" + "a1" * 18, "glpat-0123456789abcdefghij", "AKIA" + "A1B2" * 4, "AIza" + "x" * 35),
        *("xox" + "b-12345678-abcdef", "sk" + "_live_4eC39HqLyjWDarjtT1zdp7dc", "hvs.CAESIabcdefghijklmnop", "dckr_pat_abcdefgh12345678abcd"),
    ],
)  # fmt: skip
def test_a_known_format_is_one(text: str) -> None:
    assert format_in(f"x {text}") is not None


@pytest.mark.parametrize(
    "text",
    [
        *("vllm/vllm-openai@sha256:" + "0123456789abcdef" * 4, "d752f721751a261968d47d66a33f0f0b3bdbe4ee", "a1" * 32, "0f8fad5b-d9cb-469f-a165-70867728950e"),
        *("/models/hub/models--Qwen--Qwen3-Coder-30B-A3B-Instruct/snapshots/" + "ab12" * 10 + "/" + "long_name_of_a_folder/" * 8, "Qwen/Qwen3-Coder-30B"),
        *("http://127.0.0.1:8000/v1@x", "rdma://10.0.0.1:12345?dev=mlx5_0@numa1", "redis://user@cache:6379", "/mnt/hf_checkpoints2/Qwen"),
        *("sk-linear-attention-kernel-for-everybody", "basic attention", "bearer of news", "uses Basic scheduling", "bm90IGEgc2VjcmV0IGF0IGFsbA=="),
    ],
)  # fmt: skip
def test_a_checksum_a_path_and_prose_have_no_known_format(text: str) -> None:
    assert format_in(text) is None


def test_secrets_are_known_by_name_by_format_and_by_what_the_config_refers_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = {
        "ANY_NAME": "opensesame1",
        "HF_TOKEN": "abcdef1",
        "STORE_AT": "redis://u:letmein1@h",
        "HOME": "/home/someone",
    }
    monkeypatch.delenv("CONNECTOR_TAX_REFERENCES", raising=False)
    monkeypatch.setenv("ANY_NAME", values["ANY_NAME"])
    know_references({"env": {"DSN": "u:${ANY_NAME}", "AT": "${STORE}"}, "extra_args": ["${NOT_SET}"]})
    environment = {**values, "CONNECTOR_TAX_REFERENCES": os.environ["CONNECTOR_TAX_REFERENCES"]}
    assert environment["CONNECTOR_TAX_REFERENCES"] == "ANY_NAME", "what is not set has no value to be hidden"
    found = secrets_of(environment)
    assert found == {"opensesame1", "abcdef1", "redis://u:letmein1@h", "://u:letmein1@", "letmein1"}


def test_a_token_within_a_variables_text_is_one_by_itself() -> None:
    token = "hf_" + "aB3" * 11
    assert token in secrets_of({"FLAGS": f"--port 1 --with {token} --seed 2"})


@pytest.mark.parametrize(
    "value", ["it's 5\"x/ü", "a\nlong first line, no 1\nand a second one", os.fsdecode(b"open\xffsesame1")]
)
def test_a_known_secret_is_found_however_a_text_writes_it(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_PASSWORD", value)
    document = {"reason": f"no login with {value}.", "n": 1}
    write_json(tmp_path / "a.json", document)
    assert read_json(tmp_path / "a.json") == {"reason": f"no login with {MASKED}.", "n": 1}
    write_text(tmp_path / "a.txt", f"{document!r}\n{value}\n")
    assert (
        "sesame" not in (tmp_path / "a.txt").read_text()
        and "second one" not in (tmp_path / "a.txt").read_text()
    )
    assert masked(to_json({"a": 1})) == to_json({"a": 1})


def test_the_password_of_a_url_and_the_token_of_a_login_are_masked_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOME_URL", "redis://u:letmein1@h/0")
    monkeypatch.setenv("SOME_HEADER", "Bearer zyx-987-abc")
    assert masked("letmein1, zyx-987-abc; redis://u:letmein1@h/0") == f"{MASKED}, {MASKED}; {MASKED}"
    assert masked("redis%3A%2F%2Fu%3Aletmein1%40h%2F0") == MASKED


def test_words_and_short_numbers_are_not_taken_for_a_known_secret() -> None:
    known = frozenset(["cache", "123456", "mooncake", "lmcache_only", "measured", ""])
    text = "cache of 123456 tokens: mooncake, lmcache_only, measured"
    assert without(text, known) == text


def test_a_known_secret_is_a_whole_word_unless_it_was_drawn_by_chance() -> None:
    known = frozenset(["abcd1234", "Zq9xK2mN4pL7", "correcthorsebattery"])
    text = "abcd1234 x_abcd1234 abcd12345 (abcd1234) a\\nabcd1234 xZq9xK2mN4pL7y correcthorsebattery"
    assert (
        without(text, known) == f"{MASKED} x_abcd1234 abcd12345 ({MASKED}) a\\n{MASKED} x{MASKED}y {MASKED}"
    )


def test_keys_and_numbers_of_a_document_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "12345678")
    value: dict[str, Any] = {
        "12345678": {"bytes": 12345678, "said": ["12345678"]},
        "nixl_auth": 0.97,
        "db_password": 12345,
    }
    assert masked_values(value) == {**value, "12345678": {"bytes": 12345678, "said": [MASKED]}}


def test_what_no_variable_holds_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is not searched for what may be a secret: names, numbers and words of a log are what they are."""
    text = "password=S-12345678 --api-key abcdef123 Authorization: Bearer zyx-987-abc redis://u:pw1@h"
    assert masked(text) == text


def test_a_known_secret_goes_before_a_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a secret is known by nothing."""
    monkeypatch.setenv("VLLM_API_KEY", SECRET)
    said = b"m" * 180 + f" {SECRET} was refused".encode()
    assert excerpt(said, 200) == "m" * 180 + f" {MASKED} was refu"
    assert excerpt(b"\xff" + b"a" * 300, 3) == "\N{REPLACEMENT CHARACTER}aa"
