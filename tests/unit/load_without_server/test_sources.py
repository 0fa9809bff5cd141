"""Files of other tools are told by what is in them, and become files that workers read; what cannot is named with its line."""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connector_tax.base.errors import ConfigError
from connector_tax.base.records.sessions import Session, Turn, read_sessions
from connector_tax.load.sources import write_prompts, write_trace
from connector_tax.run.workload.lengths import parse_lengths
from connector_tax.run.workload.prompts import Prompt, read_prompts

LENGTHS = parse_lengths("uniform:5,500")
# As ShareGPT_V3_unfiltered_cleaned_split.json has it: parts of one conversation, some of which begin with an answer.
SHARE_GPT = [
    {"id": "a_0", "conversations": [
        {"from": "human", "value": "What is a tax?"},
        {"from": "gpt", "value": "x" * 41},
        {"from": "human", "value": "And then?"},
        {"from": "gpt", "value": "y" * 400},
    ]},
    {"id": "a_1", "conversations": [{"from": "gpt", "value": "cut"}, {"from": "human", "value": "Zwölf?"}, {"from": "gpt", "value": "ja"}]},
    {"id": "b_0", "conversations": [{"from": "human", "value": "nobody answers"}]},
    {"id": "c_0", "conversations": [{"from": "human", "value": ""}, {"from": "gpt", "value": "to what?"}]},
    {"id": "d_0", "conversations": []},
]  # fmt: skip
# The first lines of AzureLLMInferenceTrace_code.csv (2023); it has CR LF, and no line feed at its end.
AZURE_2023 = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    b"2023-11-16 18:17:03.9799600,4808,10\r\n"
    b"2023-11-16 18:17:04.0319600,3180,8\r\n"
    b"2023-11-16 19:14:19.9280160,549,173"
)
# Of AzureLLMInferenceTrace_conv_1week.csv (2024), where a whole second has no fraction.
AZURE_2024 = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
    b"2024-05-12 00:00:00.001163+00:00,1452,3\n"
    b"2024-05-12 00:00:01+00:00,584,3\n"
)
# Of Mooncake's conversation_trace.jsonl, the third moved to the front.
MOONCAKE = [
    {"timestamp": 3000, "input_length": 915, "output_length": 355, "hash_ids": [0, 462]},
    {"timestamp": 0, "input_length": 2290, "output_length": 316, "hash_ids": [0, 42, 43, 44, 45]},
    {"timestamp": 5999, "input_length": 1053, "output_length": 26, "hash_ids": [0, 773, 774]},
]


def written(path: Path, content: bytes | str | list[Any]) -> Path:
    """Lists are JSONL."""
    if isinstance(content, list):
        content = "\n".join(json.dumps(line) for line in content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def converted(folder: Path, content: bytes | str | list[Any], **how: Any) -> list[Prompt]:
    source, into = written(folder / "source", content), folder / "into.jsonl"
    n = write_prompts(source, into, **{"output_lengths": None, "seed": 7, **how})
    found = list(read_prompts(into))
    assert n == len(found)
    return found


def replayed(folder: Path, content: bytes | str | list[Any], speed: float = 1.0) -> list[Session]:
    source, into = written(folder / "source", content), folder / "into.jsonl"
    n = write_trace(source, into, speed=speed)
    found = list(read_sessions(into))
    assert n == len(found)
    return found


def test_a_file_of_our_own_keeps_its_prompts(tmp_path: Path) -> None:
    content = b'{"output_tokens": 3, "prompt": "zw\xc3\xb6lf"}\n\n{"prompt":[7,8],"output_tokens":2}\n'
    source, into = written(tmp_path / "p", content), tmp_path / "into"
    assert write_prompts(source, into, output_lengths=None, seed=0) == 2
    assert read_prompts(into) == (Prompt("zwölf", None, 3), Prompt([7, 8], 2, 2))


def test_lengths_that_are_asked_for_replace_those_of_the_file(tmp_path: Path) -> None:
    lines = [{"prompt": "a", "output_tokens": 3}] * 3
    (first, *_), again = (converted(tmp_path, lines, output_lengths=LENGTHS) for _ in range(2))
    assert first == again[0]
    other = converted(tmp_path, lines, output_lengths=LENGTHS, seed=8)
    drawn = [[p.output_tokens for p in prompts] for prompts in (again, other)]
    assert drawn[0] != drawn[1]
    assert all(5 <= n <= 500 for n in drawn[0] + drawn[1])


def test_share_gpt_gives_the_first_question_and_the_length_of_its_answer(tmp_path: Path) -> None:
    found = converted(tmp_path, json.dumps(SHARE_GPT, indent=1))
    # 41 characters at four a token are 10.25 tokens, two are half a token: at least one.
    assert found == [Prompt("What is a tax?", None, 10), Prompt("Zwölf?", None, 1)]
    assert [p.output_tokens for p in converted(tmp_path, SHARE_GPT, chars_per_token=2.0)] == [20, 1]
    given = converted(tmp_path, json.dumps(SHARE_GPT), output_lengths=parse_lengths("77"))
    assert [p.output_tokens for p in given] == [77, 77]


ROLES = {"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


@pytest.mark.parametrize(
    "content",
    [[*SHARE_GPT, ROLES], json.dumps([*SHARE_GPT, ROLES])],
    ids=["one a line", "a list"],
)
def test_entries_that_are_left_out_are_counted(
    tmp_path: Path, content: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those with other keys, as of chats with roles."""
    assert len(converted(tmp_path, content)) == 2
    assert "4 of 6 entries are left out" in capsys.readouterr().err


def test_lines_without_lengths_are_given_some(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why?"}]
    lines = [
        {"prompt": "a", "id": 3},
        {"text": "b"},
        {"messages": messages},
        {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": messages}},
        {"prompt": [5, 6]},
    ]  # fmt: skip
    found = converted(tmp_path, lines, output_lengths=parse_lengths("9"))
    assert [p.content for p in found] == ["a", "b", messages, messages, [5, 6]]
    assert {p.output_tokens for p in found} == {9}


def test_plain_text_is_a_prompt_a_line(tmp_path: Path) -> None:
    content = "\ufeff[INST] one\r\n\n  two\u2028three\t!\n".encode()
    source, into = written(tmp_path / "p.txt.gz", gzip.compress(content)), tmp_path / "into"
    assert write_prompts(source, into, output_lengths=LENGTHS, seed=0) == 2
    assert [p.content for p in read_prompts(into)] == ["[INST] one", "  two\u2028three\t!"]


@pytest.mark.parametrize(
    ("name", "text"),
    [("prompts.TSV", "prompt\nHello\n"), ("prompts.json", '["Hello", "Goodbye"]')],
)
def test_lines_of_a_table_or_of_json_are_no_prompts(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=r'give one JSON object per line, \{"prompt"'):
        write_prompts(tmp_path / name, tmp_path / "out", output_lengths=None, seed=1)


def test_a_limit_takes_the_first_ones(tmp_path: Path) -> None:
    lines = [{"prompt": str(k), "output_tokens": k} for k in range(1, 9)]
    assert [p.content for p in converted(tmp_path, lines, limit=3)] == ["1", "2", "3"]
    assert len(converted(tmp_path, lines, limit=100)) == 8


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("one\ntwo\n", r"line 1 does not say how long its answer shall be\. Give --output-length"),
        ([{"prompt": "a", "output_tokens": 1}, {"text": "b"}], "line 2 does not say"),
        ([{"prompt": "a"}, {"question": "b"}], "line 2: no prompt: wanted is one of the keys prompt, .* Found: .*question"),
        ([{"prompt": ""}], "line 1: prompt: a text or a list of token ids is wanted"),
        ([{"prompt": ["a", "b"]}], "line 1: prompt: a text"),
        ([{"prompt": "a", "output_tokens": True}], "line 1: output_tokens: True is not"),
        ([{"messages": [{"content": "a"}]}], "line 1: messages: a list of objects with role"),
        ('{"prompt": "a"}\n{"prompt": "b"', "line 2: Input data was truncated"),
        ('[{"conversations": [{"from": "human"', "JSON list that cannot be read .*truncated.*ShareGPT"),
        ([[{"prompt": "a"}]], "none of its 1 entries has a human's turn"),
        ("", "holds no prompt"),
        (b"one\n\x00two", "line 2: a control character: this is no text"),
        (b"one\n\xff", "line 2: .*utf-8"),
    ],
)  # fmt: skip
def test_what_is_no_prompt_is_named(tmp_path: Path, content: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        converted(tmp_path, content)
    assert str(caught.value).startswith(str(tmp_path / "source"))
    assert not (tmp_path / "into.jsonl").exists()


@pytest.mark.parametrize("write", [write_prompts, write_trace])
def test_what_is_no_file_is_named(tmp_path: Path, write: Any) -> None:
    how = {"speed": 1.0} if write is write_trace else {"output_lengths": LENGTHS, "seed": 0}
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"x" * 9000)[:30])
    for name, what in (
        ("none", "no such file"),
        (".", "no regular file"),
        ("circle", "circle"),
        ("a\0b", "null"),
        ("torn.gz", "unpacked"),
    ):
        with pytest.raises(ConfigError, match=what):
            write(tmp_path / name, tmp_path / "into", **how)
    text = written(tmp_path / "text", "one")
    with pytest.raises(ConfigError, match="written over"):
        write(text, tmp_path / "." / "text", **how)


def test_a_mooncake_trace_keeps_what_its_requests_share_and_begins_with_the_first(tmp_path: Path) -> None:
    later = [{**line, "timestamp": line["timestamp"] + 27482.5} for line in MOONCAKE]
    for lines in (MOONCAKE, later):
        first, second, third = replayed(tmp_path, lines, speed=2.0)
        assert first == Session((Turn(2290, 316, blocks=(0, 42, 43, 44)),), 0.0)
        assert second == Session((Turn(915, 355, blocks=(0,)),), 1.5)
        assert third.arrival_s == pytest.approx(2.9995)
    (unshared,) = replayed(tmp_path, [{"timestamp": 5, "input_length": 900, "output_length": 2}])
    assert unshared == Session((Turn(900, 2),), 0.0)
    with pytest.raises(ConfigError, match="would be due after"):
        replayed(tmp_path, MOONCAKE, 1e-300)


def test_azures_times_are_read_with_seven_digits_and_with_zones(tmp_path: Path) -> None:
    found = replayed(tmp_path, AZURE_2023)
    assert [s.turns for s in found] == [(Turn(4808, 10),), (Turn(3180, 8),), (Turn(549, 173),)]
    # 18:17:03.97996 to 18:17:04.03196, and to 19:14:19.928016.
    assert [s.arrival_s for s in found] == pytest.approx([0, 0.052, 3435.948056], abs=1e-9)
    found = replayed(tmp_path, AZURE_2024, speed=0.5)
    assert [s.arrival_s for s in found] == pytest.approx([0, 1.997674], abs=1e-9)
    elsewhere = AZURE_2024.replace(b"00:00:01+00:00", b"02:00:01+02:00")
    assert replayed(tmp_path, elsewhere, speed=0.5) == found


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("index", [None, b"", b"Unnamed: 0"])
@pytest.mark.parametrize("quote", [b"", b'"'])
def test_azure_as_pandas_writes_it(tmp_path: Path, end: bytes, index: bytes | None, quote: bytes) -> None:
    rows = [line.split(b",") for line in AZURE_2024.splitlines()]
    if index is not None:
        rows = [[index if k == 0 else b"%d" % (k - 1), *row] for k, row in enumerate(rows)]
    content = end.join(b",".join(quote + cell + quote for cell in row) for row in rows) + end
    assert replayed(tmp_path, content) == replayed(tmp_path, AZURE_2024)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ([MOONCAKE[0], {**MOONCAKE[0], "output_length": -3}], "line 2: .*>= 1.*output_length"),
        ([{**MOONCAKE[0], "input_length": 915.0}], "line 1: Expected `int`.*input_length"),
        ([{**MOONCAKE[0], "timestamp": 1e300}], "line 1: .*timestamp"),
        ([{**MOONCAKE[0], "hash_ids": list(range(58))}], "line 1: hash_ids: 58 of them, where 915 tokens make 2 blocks of 512"),
        ([{**MOONCAKE[0], "session_id": "x"}], "line 1: .*unknown field `session_id`"),
        ('{"timestamp": 1', "line 1: Input data was truncated"),
        ([MOONCAKE[0], 7], "line 2: no JSON object"),
        (AZURE_2023.replace(b"3180", b"-3180"), "line 3: .*>= 1.*ContextTokens"),
        (AZURE_2023.replace(b"11-16 18:17:04", b"13-16 18:17:04"), "line 3: .*TIMESTAMP"),
        (AZURE_2023 + b",4", "line 4: 4 columns"),
        # Azure's trace of 2025 counts images, which are not sent.
        ("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n", "begins with .*NumImages.* Known are Mooncake .* and Azure"),
        (AZURE_2023.partition(b"\n")[0], "holds no request"),
        ("", "begins with ''"),
    ],
)  # fmt: skip
def test_what_is_no_request_of_a_trace_is_named(tmp_path: Path, content: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        replayed(tmp_path, content)
    assert str(caught.value).startswith(str(tmp_path / "source"))
    assert not (tmp_path / "into.jsonl").exists()


GOOD = [
    json.dumps(SHARE_GPT).encode(),
    b"\n".join(json.dumps(line).encode() for line in MOONCAKE),
    AZURE_2023,
    AZURE_2024,
    b'{"prompt": "zw\\u00f6lf", "output_tokens": 3}\n{"messages": [{"role": "user", "content": "a"}], "output_tokens": 3}',
]


@st.composite
def mutilated(draw: st.DrawFn) -> bytes:
    """A good file cut off, with bytes put in place of others."""
    content = bytearray(draw(st.sampled_from(GOOD)))
    del content[draw(st.integers(0, len(content))) :]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4) | st.sampled_from([b"\\ud800", b"[" * 9999, b"1e999"]))  # fmt: skip
    return bytes(content)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=200) | mutilated(), st.booleans())
def test_any_bytes_are_read_or_refused(content: bytes, with_lengths: bool) -> None:
    """Whatever is written can be read by those for whom it is written."""
    with tempfile.TemporaryDirectory() as folder:
        source, into = written(Path(folder, "source"), content), Path(folder, "into")
        try:
            n = write_prompts(source, into, output_lengths=LENGTHS if with_lengths else None, seed=1)
        except ConfigError:
            assert not into.exists()
        else:
            assert len(read_prompts(into)) == n
            into.unlink()
        try:
            n = write_trace(source, into, speed=3.0)
        except ConfigError:
            assert not into.exists()
        else:
            assert len(read_sessions(into)) == n
