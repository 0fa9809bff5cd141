"""Values of command lines to their end; secrets over several lines, in texts of any length; what is cut, cut afterwards."""

from typing import Any

import pytest

from connector_tax.base.redaction import (
    BLANKED,
    excerpt,
    published,
    redacted,
    redacted_text,
    secrets_in,
    without,
)

SECRET = "T2xLk9Rw4nQw"
# A text above 64 KiB is not looked at in whole.
LONG = ("x" * 100 + "\n") * 700


@pytest.mark.parametrize(
    "between", [",", ";", ")", "'", '"', " ", "&", "{", "]", "}", "<", "\n", "=", ", --seed=1 "]
)
@pytest.mark.parametrize(
    "head", ["--redis-password=", "--kv.redis_password=", "REDIS_PASSWORD=", "X-Api-Key: "]
)
def test_a_list_items_value_is_blanked_to_its_end(head: str, between: str) -> None:
    arguments = ["-e", f"{head}Zq8v{between}{SECRET}", "--seed", "1"]
    assert redacted(arguments) == ["-e", f"{head}{BLANKED}", "--seed", "1"]
    assert published({"config": {"engine": {"extra_args": arguments}}}) == {
        "config": {"engine": {"extra_args": ["-e", f"{head}{BLANKED}", "--seed", "1"]}}
    }
    assert redacted(redacted(arguments)) == redacted(arguments)
    assert f"Zq8v{between}{SECRET}" in secrets_in(arguments)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ([f"--redis-password=null,{SECRET}"], [f"--redis-password={BLANKED}"]),
        ([f"--redis-password=[Zq8v]{SECRET}"], [f"--redis-password={BLANKED}"]),
        ([f'--redis-password="Zq8v"{SECRET}'], [f"--redis-password={BLANKED}"]),
        ([f"--redis-password=${{A}}{SECRET}"], [f"--redis-password={BLANKED}"]),
        (["--header", f"Authorization: ApiKey {SECRET}"], ["--header", f"Authorization: {BLANKED}"]),
        ([f"--env=REDIS_PASSWORD=a,{SECRET}"], [f"--env=REDIS_PASSWORD={BLANKED}"]),
        (["--redis-password", f"-Zq8{SECRET}", "--seed"], ["--redis-password", BLANKED, "--seed"]),
        (["--redis-password", f"--Zq8{SECRET}"], ["--redis-password", BLANKED]),
        (["redis_password", f"-{SECRET}"], ["redis_password", BLANKED]),
        ([f"--api-k={SECRET}", "--hf_t", SECRET], [f"--api-k={BLANKED}", "--hf_t", BLANKED]),
        (
            ['--kv-transfer-config={"a": {"redis_password": "Zq8v,\\"T2x"}, "n": 1}'],
            [f'--kv-transfer-config={{"a": {{"redis_password": "{BLANKED}"}}, "n": 1}}'],
        ),
    ],
)
def test_more_that_a_command_line_says_in_secret(arguments: list[str], shown: list[str]) -> None:
    assert redacted(arguments) == shown and redacted(shown) == shown


@pytest.mark.parametrize(
    "arguments",
    [
        ["--redis-password=${REDIS_PASSWORD}", "--auth=${USER}:${PASSWORD}", "--hf-token="],
        ["--use-auth", "--max-model-len2=8192", "-tp", "2", "-O3", "-cc.mode", "3", "--seed", "12345678"],
        ["--hf-token", "--enable-prefix-caching", "--max-num-batched-tokens", "8192", "-dpn=10"],
        ['--compilation-config={"level": 3,  "cache_key": 12345678}', "--block-key=16,32", "--pass=3"],
        ["unexpected token: foo", "auth: none", "note: a, b", "max_num_batched_tokens=8192, seed=1"],
    ],
)
def test_a_command_line_without_a_secret_is_left_as_it_is(arguments: list[str]) -> None:
    assert redacted(arguments) == arguments


@pytest.mark.parametrize("padding", ["", LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis_password: |\n  S-1\n  S-2\nseed: 1\n", f"redis_password: |\n  {BLANKED}\nseed: 1\n"),
        ("--redis-password \\\n  S-1\n", f"--redis-password \\\n  {BLANKED}\n"),
        ('redis_password = """\nS-1\n\nS-2"""\nb\n', f'redis_password = """{BLANKED}"""\nb\n'),
        ('  "redis_password":\n         "S-1",\n', f'  "redis_password":\n         "{BLANKED}",\n'),
        ("Authorization: Bearer\n  S-1-S-1-S-1\n", f"Authorization: {BLANKED}\n"),
        ("redis_password=\n   S-1\nb\n", f"redis_password=\n   {BLANKED}\nb\n"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nb\n", f"{BLANKED}\nb\n"),
    ],
)
def test_a_secret_over_several_lines_is_found_in_a_text_of_any_length(
    text: str, shown: str, padding: str
) -> None:
    assert redacted_text(padding + text + padding) == padding + shown + padding


def test_a_member_on_the_next_line_is_no_value() -> None:
    text = "credentials:\n    provider: env\nauth:\n    retries: 12345678\n"
    assert redacted_text(text) == text and redacted_text(LONG + text) == LONG + text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "Mooncake (basic transport)",
            "basic attention",
            "Basic scheduling, 12345678",
            "basic configuration",
        ),
        *("uses basic checkpointing", "basic multiprocessing"),
    ],
)
def test_basic_is_an_ordinary_word(text: str) -> None:
    assert redacted_text(text) == text and redacted({"label": text}) == {"label": text}


def test_basic_before_a_login_is_not() -> None:
    assert redacted_text("sent Basic dXNlcjpwYXNzdzByZA== to it") == f"sent Basic {BLANKED} to it"


def test_a_known_secret_goes_before_a_text_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a secret is known by nothing."""
    monkeypatch.setenv("VLLM_API_KEY", "Zq8vT2xLk9Rw4nBd7fHsQ1")
    said = b"m" * 180 + b" Zq8vT2xLk9Rw4nBd7fHsQ1 was refused"
    assert excerpt(said, 200) == "m" * 180 + f" {BLANKED} was refu"
    assert excerpt(b"\xff" + b"a" * 300, 3) == "\N{REPLACEMENT CHARACTER}aa"


def test_what_is_put_in_a_known_secrets_place_can_be_chosen() -> None:
    seen: list[Any] = []

    def take(name: str, secret: str) -> str:
        seen.append((name, secret))
        return "$X"

    assert without(f"a {SECRET} b", frozenset([SECRET]), take) == "a $X b" and seen == [("", SECRET)]
