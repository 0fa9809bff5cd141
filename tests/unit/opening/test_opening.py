"""What is opened, and what is refused in one sentence."""

import gzip
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import (
    _once,
    parse_json,
    parse_lines,
    read_json,
    sha256_of,
    write_text_if_changed,
)
from connector_tax.base.opening import (
    bare,
    each_line_of,
    is_bare,
    is_campaign_name,
    is_date,
    lines_of,
    links_beneath,
    open_regular,
    printable,
    read_whole,
)


@pytest.mark.parametrize(
    "name", ["r0.5_4096x256", "c8_128x256_k50000", "r1e-05_8x8", "a file", "übung", "a..b"]
)
def test_a_bare_name_is_taken(name: str) -> None:
    assert bare(name, "cell") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "a/b",
        "/etc/passwd",
        "../x",
        "a\n",
        "a\0",
        "a\x1b[31m",
        "\ud800",
        "x" * 256,
        "ü" * 128,
        None,
        7,
        ["a"],
    ],
)
def test_what_is_no_bare_name_is_refused_with_what_it_was(name: object) -> None:
    assert not is_bare(name)
    with pytest.raises(ArtifactError, match=r"cell .* is no bare name") as refused:
        bare(name, "cell")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "text", ["2026-02-30", "2026-1-1", "../../..", "2026-11-20\n", "２０２６-11-20", 20261120, None]
)
def test_what_is_no_day_is_no_date(text: object) -> None:
    assert is_date("2026-11-20")
    assert not is_date(text)


@pytest.mark.parametrize("text", ["demo\n", "-demo", ".demo", "a b", "<b>", "a/b", "x" * 300])
def test_what_names_no_campaign(text: str) -> None:
    assert is_campaign_name("h20-qwen3-coder-30b")
    assert not is_campaign_name(text)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


def _link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


IRREGULAR = {
    "a folder": Path.mkdir,
    "a pipe": _fifo,
    "a socket": _socket,
    "a link to a device": _link_to("/dev/zero"),
    "a link to a file": _link_to("/etc/hostname"),
    "a link to nothing": _link_to("/nowhere/at all"),
    "a link to itself": _link_to("there"),
}


@pytest.fixture(params=IRREGULAR)
def irregular(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
    IRREGULAR[request.param](tmp_path / "there")
    yield tmp_path / "there"


def test_only_a_regular_file_is_opened(irregular: Path) -> None:
    """No pipe is waited for, no device read, no link followed."""
    for read in (read_whole, read_json, sha256_of):
        with pytest.raises(ArtifactError, match=r"there: cannot be read"):
            read(irregular)


def test_what_is_larger_than_wanted_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.touch()
    os.truncate(path, 1 << 40)  # a hole; a terabyte would be read otherwise
    for read in (read_whole, read_json, sha256_of):
        with pytest.raises(ArtifactError, match=r"1099511627776 bytes, at most"):
            read(path)


def test_what_is_not_there_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none", 10)
    with pytest.raises(ArtifactError, match="no such file"):
        read_json(tmp_path / "none")


def test_a_name_with_a_null_byte_is_no_bug(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="null"):
        read_whole(tmp_path / "a\0b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 200_000, "nested"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested more than 64 deep"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"\\uDFFF": 1}', "surrogates not allowed"),
        ("1e400", "1e400 is not a number"),
        ("NaN", "NaN is not a number"),
        ("-Infinity", "-Infinity is not a number"),
        ("9223372036854775808", "beyond 64 bits"),
        ("1" * 10_000, "an integer of 10000 characters is beyond 64 bits"),
        ('{"verdict": "invalid", "verdict": "valid"}', "the key 'verdict' stands twice"),
        ("\ufeff{}", "BOM"),
        ("", "Expecting value"),
    ],
)  # fmt: skip
def test_json_that_readers_could_take_for_different_things_is_none(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text.encode())


@pytest.mark.parametrize(
    "text",
    ["9223372036854775807", "-9223372036854775808", '"\\ud83d\\ude00"', '"\\\\ud800"', "[" * 60 + "]" * 60],
)
def test_what_is_large_and_json_is_read(text: str) -> None:
    parse_json(text.encode())


def test_a_key_that_stands_twice_is_found_in_one_pass() -> None:
    compared = 0

    class Name(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, str(other))

    names = [Name(f"key {k}") for k in range(1000)]
    with pytest.raises(ValueError, match="the key 'key 999' stands twice"):
        _once([(name, None) for name in (*names, Name("key 999"))])
    assert compared < 100


def test_only_a_line_feed_ends_a_line() -> None:
    """JSON leaves U+2028, U+0085 and their like inside a text as they are."""
    text = '{"a": "one\u2028two\x85three\u2029"}\n\x0b\n'
    assert lines_of(text.encode()) == ['{"a": "one\u2028two\x85three\u2029"}', "\x0b"]
    assert lines_of(b"") == []


def test_a_prompt_with_a_line_separator_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_bytes('{"p": "one\u2028two"}\r\n\n{"p": "\x85"}\n'.encode())
    assert parse_lines(path, lambda v: v["p"], "a prompt") == ("one\u2028two", "\x85")
    path.write_text("[" * 200_000)
    with pytest.raises(ConfigError, match="line 1: nested"):
        parse_lines(path, lambda v: v, "a prompt")


def test_a_link_in_the_place_of_a_product_is_replaced_and_its_target_left_alone(tmp_path: Path) -> None:
    target, product = tmp_path / "target", tmp_path / "product"
    target.write_text("same")
    product.symlink_to(target)
    assert write_text_if_changed(product, "same")
    assert not product.is_symlink()
    assert write_text_if_changed(product, "other")
    assert target.read_text() == "same"


def test_every_link_is_found_and_none_followed(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    (tmp_path / "a" / "b" / "gone").symlink_to("nowhere")
    assert links_beneath(tmp_path) == [tmp_path / "a" / "b" / "gone", tmp_path / "a" / "round"]


def test_what_is_printed_moves_no_cursor_and_has_an_end() -> None:
    assert printable("a\x1b[2Jb\u202ec") == "a [2Jb c"
    assert printable("x" * 300_000, 10) == "xxxxxxxxxx... (300000 characters)"


def test_a_packed_stream_is_unpacked_as_it_is_read(tmp_path: Path) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b"1\n2\n"))
    assert list(each_line_of(packed, 100)) == [b"1", b"2"]


@pytest.mark.parametrize(
    "content",
    [b"1\n2\n", gzip.compress(b"1\n" * 5000, mtime=0)[:-12], b"\x1f\x8b" + bytes(40)],
    ids=["not packed", "cut", "damaged"],
)
def test_a_packed_stream_that_is_none_or_was_cut_is_refused(tmp_path: Path, content: bytes) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"a\.jsonl\.gz: cannot be unpacked"):
        list(each_line_of(packed, 1 << 20))


def test_a_small_file_that_holds_too_much_is_refused_before_it_is_in_memory(tmp_path: Path) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(bytes(10 << 20)))
    with pytest.raises(ArtifactError, match="grew beyond 1048576 bytes"):
        list(each_line_of(packed, 1 << 20))
