"""What is opened, and what is refused in one sentence."""

import gzip
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from connector_tax.base import files
from connector_tax.base.errors import ArtifactError, ConfigError
from connector_tax.base.files import (
    bare,
    each_line_of,
    is_bare,
    is_campaign_name,
    is_date,
    lines_of,
    open_regular,
    parse_json,
    parse_lines,
    printable,
    read_json,
    read_whole,
    sha256_of,
    write_text_if_changed,
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


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(path))


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, _socket, lambda path: path.symlink_to("there")])
def test_only_a_regular_file_is_opened(
    make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pipe is waited for."""
    monkeypatch.chdir(tmp_path)  # a socket's path may have 107 bytes
    make(tmp_path / "there")
    for read in (read_whole, read_json, sha256_of):
        with pytest.raises(ArtifactError, match=r"there: cannot be read"):
            read(tmp_path / "there")


def test_what_is_larger_than_wanted_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.touch()
    os.truncate(path, 1 << 40)  # a hole; a terabyte would be read otherwise
    for read in (read_whole, read_json, sha256_of):
        with pytest.raises(ArtifactError, match=r"1099511627776 bytes, at most"):
            read(path)


def test_what_is_not_there_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none")
    with pytest.raises(ArtifactError, match="no such file"):
        read_json(tmp_path / "none")


def test_a_name_with_a_null_byte_is_no_bug(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="null"):
        read_whole(tmp_path / "a\0b")


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"a": "\\ud800"}', "1e400", "NaN", "-Infinity", "\ufeff{}", "", "{"]
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text.encode())


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


def test_what_is_printed_moves_no_cursor_and_has_an_end() -> None:
    assert printable("a\x1b[2Jb\u202ec") == "a [2Jb c"
    assert printable("x" * 300_000, 10) == "xxxxxxxxxx... (300000 characters)"


def test_a_packed_stream_is_unpacked_as_it_is_read(tmp_path: Path) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(b"1\n2\n"))
    assert list(each_line_of(packed)) == [b"1", b"2"]


@pytest.mark.parametrize(
    "content",
    [b"1\n2\n", gzip.compress(b"1\n" * 5000, mtime=0)[:-12], b"\x1f\x8b" + bytes(40)],
    ids=["not packed", "cut", "damaged"],
)
def test_a_packed_stream_that_is_none_or_was_cut_is_refused(tmp_path: Path, content: bytes) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"a\.jsonl\.gz: cannot be unpacked"):
        list(each_line_of(packed))


def test_a_small_file_that_holds_too_much_is_refused_before_it_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tmp_path / "a.jsonl.gz"
    packed.write_bytes(gzip.compress(bytes(10 << 20)))
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    with pytest.raises(ArtifactError, match="holds more than 1048576 bytes"):
        list(each_line_of(packed))
