"""Archives that were made to do harm: each is refused with a line that says why, and nothing of it is written anywhere."""

import stat
import struct
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from connector_tax.cli import command
from connector_tax.read.bundle import archive as archive_module
from connector_tax.read.bundle.verifying import verify

sys.path.insert(0, str(Path(__file__).parent))
from bundles import packed, sealed


def said(path: Path) -> list[str]:
    before = sorted(path.parent.rglob("*"))
    found = [str(finding) for finding in verify(path).findings]
    assert command("verify").call([str(path), "--reproduce"]) == (1 if found else 0)
    assert sorted(path.parent.rglob("*")) == before
    return found


def test_the_archive_of_the_tests_is_taken_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert verify(packed(tmp_path / "b.zip", [("a", b"1"), ("d/b", b"2")])).findings == []


@pytest.mark.parametrize(
    "name",
    ["/etc/passwd", "../out", "a/../../out", "a//b", "./a", "a/", ".hidden", "C:\\out", "C:/out", "a\\..\\b", "-/..",
     "a\x1bb", "a\nb", "a\x7f", "a\u202eb"],
)  # fmt: skip
def test_a_name_that_leads_out_or_cannot_be_shown(tmp_path: Path, name: str) -> None:
    found = said(packed(tmp_path / "b.zip", [(name, b"x"), ("ok", b"y")]))
    assert any("has a name" in line for line in found), found
    assert all(line.isprintable() for line in found)


def test_a_link(tmp_path: Path) -> None:
    def link(info: zipfile.ZipInfo) -> None:
        info.external_attr = (stat.S_IFLNK | 0o777) << 16

    assert "a: is a link" in said(
        packed(tmp_path / "b.zip", [("a", b"/etc/passwd"), ("b", b"")], change=link)
    )


def test_a_device(tmp_path: Path) -> None:
    def device(info: zipfile.ZipInfo) -> None:
        info.external_attr = (stat.S_IFCHR | 0o644) << 16

    assert "a: its entry in the directory was changed" in said(
        packed(tmp_path / "b.zip", [("a", b"")], change=device)
    )


def test_an_encrypted_member(tmp_path: Path) -> None:
    path = packed(tmp_path / "b.zip", [("a", b"x")])
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(sealed(bytes(content)))
    assert "a: is encrypted" in said(path)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("a", "a"), "a: stands there twice"),
        (("A", "a"), "a: differs from A in case only"),
        (("D/x", "d/y"), "d/y: lies in a folder that differs from D in case only"),
        (("\u00e9", "e\u0301"), "differs from"),
        (("a", "a/b"), "a/b: is a file and a folder"),
        (("manifest-sha256.txt", "x"), "manifest-sha256.txt: stands there twice"),
        (("MANIFEST-sha256.txt", "x"), "in case only"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_are_one_on_some_system(tmp_path: Path, names: tuple[str, str], what: str) -> None:
    found = said(packed(tmp_path / "b.zip", [(n, n.encode()) for n in names]))
    assert any(what in line for line in found), found


def test_a_bomb_that_says_what_it_holds(tmp_path: Path) -> None:
    found = said(packed(tmp_path / "b.zip", [("a", b"\0" * (8 << 20))]))
    assert len([line for line in found if "would unpack to" in line]) == 1


def test_a_bomb_beyond_the_size_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "b.zip", [("a", bytes(range(256)) * 40)])
    monkeypatch.setattr(archive_module, "MOST_STREAM_BYTES", 10_000)
    assert any("a: says it holds 10240 bytes" in line for line in said(path))


def test_many_members_beyond_the_size_of_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(tmp_path / "b.zip", [(f"a{n}", bytes(range(256)) * 4) for n in range(20)])
    monkeypatch.setattr(archive_module, "MOST_CONTENT_BYTES", 10_000)
    assert any("would unpack to" in line for line in said(path))


def test_a_bomb_that_lies(tmp_path: Path) -> None:
    """Directory and header say 10 bytes; it is read that far and no further."""
    path = packed(tmp_path / "b.zip", [("a", b"\0" * (64 << 20))])
    content = bytearray(path.read_bytes())
    for magic, at in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<L", content, content.index(magic) + at, 10)
    path.write_bytes(sealed(bytes(content)))
    assert "a: holds more than the 10 bytes that it says" in said(path)


def test_files_that_share_their_bytes(tmp_path: Path) -> None:
    """As the densest bombs do."""
    path = packed(tmp_path / "b.zip", [("a", b"x" * 99), ("b", b"x" * 99)])
    content = bytearray(path.read_bytes())
    second = content.index(b"PK\1\2", content.index(b"PK\1\2") + 4)
    struct.pack_into("<L", content, second + 42, 0)
    path.write_bytes(sealed(bytes(content)))
    assert any("does not begin where the file before it ends" in line for line in said(path))


def test_a_file_hidden_between_two_others(tmp_path: Path) -> None:
    path = packed(tmp_path / "b.zip", [("a", b"x")])
    content = path.read_bytes()
    at = content.index(b"PK\1\2")
    moved = bytearray(content[:at] + b"hidden" + content[at:])
    end = moved.rindex(b"PK\5\6")
    struct.pack_into("<L", moved, end + 16, at + 6)
    path.write_bytes(sealed(bytes(moved)))
    assert any("belong to no file" in line for line in said(path))


def test_data_behind_the_end_of_what_is_compressed(tmp_path: Path) -> None:
    assert zlib.decompressobj(-15).decompress(zlib.compress(b"x")[2:-4]) == b"x"
    path = packed(tmp_path / "b.zip", [("a", b"x" * 50)])
    content = path.read_bytes()
    header = bytearray(content)
    second = content.index(b"PK\3\4", 4)
    (size,) = struct.unpack_from("<L", content, 18)
    first, rest = header[:second] + b"more", header[second:]
    struct.pack_into("<L", first, 18, size + 4)
    moved = first + rest
    entry = moved.index(b"PK\1\2")
    struct.pack_into("<L", moved, entry + 20, size + 4)
    struct.pack_into("<L", moved, moved.index(b"PK\1\2", entry + 4) + 42, second + 4)
    end = moved.rindex(b"PK\5\6")
    struct.pack_into("<L", moved, end + 16, struct.unpack_from("<L", moved, end + 16)[0] + 4)
    path.write_bytes(sealed(bytes(moved)))
    assert "a: its compressed data were changed" in said(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"no zip at all" * 50, b"PK\5\6" + b"\0" * 18])
def test_what_is_no_bundle(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.zip").write_bytes(content)
    assert said(tmp_path / "b.zip") == [
        "b.zip: does not end as a bundle does: it is cut, changed or packed anew"
    ]


def test_a_directory_larger_than_any(tmp_path: Path) -> None:
    path = packed(tmp_path / "b.zip", [("a", b"x")])
    content = bytearray(path.read_bytes())
    end = content.rindex(b"PK\5\6")
    struct.pack_into("<HH", content, end + 8, 65_535, 65_535)
    path.write_bytes(sealed(bytes(content)))
    assert any("directory is larger" in line for line in said(path))
