"""Archives that are damaged, too large or lead out of their folder: each is refused with a line that says why, and nothing of it stays anywhere."""

import hashlib
import io
import lzma
import os
import random
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from connector_tax.base.errors import ArtifactError
from connector_tax.cli import command
from connector_tax.read.bundle import MANIFEST, manifest_text, verify, write_archive

Change = Callable[[tarfile.TarInfo], None]


def packed(
    path: Path,
    members: Sequence[tuple[str, bytes]],
    change: Change = lambda member: None,
    behind: bytes = b"",
) -> Path:
    """``members`` and a manifest of them in an archive made by hand; ``change`` alters the first one's header."""
    listed = {name: hashlib.sha256(content).hexdigest() for name, content in members}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for number, (name, content) in enumerate([*members, (MANIFEST, manifest_text(listed).encode())]):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if number == 0:
                change(member)
            tar.addfile(member, io.BytesIO(content))
    path.write_bytes(lzma.compress(out.getvalue() + behind))
    return path


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are unpacked for a while."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def said(path: Path) -> list[str]:
    before = sorted(path.parent.rglob("*"))
    found = [str(finding) for finding in verify(path).findings]
    assert command("verify").call([str(path), "--reproduce"]) == 1
    assert sorted(path.parent.rglob("*")) == before
    assert found and all(line.isprintable() for line in found)
    return found


def test_an_archive_that_somebody_else_packed_is_taken(tmp_path: Path) -> None:
    assert verify(packed(tmp_path / "b.tar.xz", [("a", b"1"), ("d/b", b"2")])).findings == []


def test_a_name_that_leads_out_is_refused(tmp_path: Path) -> None:
    (line,) = said(packed(tmp_path / "b.tar.xz", [("a/../../out", b"x"), ("ok", b"y")]))
    assert line.startswith("b.tar.xz: cannot be unpacked: 'a/../../out' would be extracted to")
    assert not (tmp_path / "out").exists()


def test_an_absolute_name_leads_nowhere(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert f"{target}: is missing" in said(packed(tmp_path / "b.tar.xz", [(str(target), b"x")]))
    assert not target.exists()


@pytest.mark.parametrize(
    ("kind", "to"), [(tarfile.SYMTYPE, "/etc/passwd"), (tarfile.CHRTYPE, ""), (tarfile.FIFOTYPE, "")]
)
def test_what_leads_out_or_is_no_file_is_refused(tmp_path: Path, kind: bytes, to: str) -> None:
    """By the data filter of ``tarfile``."""

    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = kind, to, 0

    (line,) = said(packed(tmp_path / "b.tar.xz", [("a", b""), ("b", b"")], change))
    assert line.startswith("b.tar.xz: cannot be unpacked: 'a' is a")


def test_an_archive_that_unpacks_to_more_than_a_bundle_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And none that large is made."""
    path = packed(tmp_path / "b.tar.xz", [(f"a{n}", bytes(2 << 20)) for n in range(4)])
    monkeypatch.setattr("connector_tax.read.bundle.MOST_BYTES", 7 << 20)
    assert said(path) == ["b.tar.xz: would unpack to more than the 7 MiB that a bundle holds"]
    (tmp_path / "large").write_bytes(bytes(8 << 20))
    with pytest.raises(ArtifactError, match=r"holds at most 7 MiB of files\. Thin the campaign first"):
        write_archive(tmp_path / "c.tar.xz", {"large": tmp_path / "large"})
    assert not (tmp_path / "c.tar.xz").exists()


def test_what_lies_behind_the_last_file_is_not_read_without_end(tmp_path: Path) -> None:
    found = said(packed(tmp_path / "b.tar.xz", [("a", b"x")], behind=bytes(64 << 20)))
    assert found == ["b.tar.xz: holds more behind its last file"]


@pytest.mark.parametrize("behind", [b"x", lzma.compress(b"x" * 2**16)])
def test_bytes_behind_the_archive_are_found(tmp_path: Path, behind: bytes) -> None:
    path = packed(tmp_path / "b.tar.xz", [("a", b"x")])
    path.write_bytes(path.read_bytes() + behind)
    assert said(path) == ["b.tar.xz: holds more behind its last file"]


@pytest.mark.parametrize("content", [b"PK", lzma.compress(b"no tar" * 500)])
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "b.tar.xz").write_bytes(content)
    (line,) = said(tmp_path / "b.tar.xz")
    assert line.startswith(("b.tar.xz: cannot be unpacked: ", "manifest-sha256.txt: is missing"))


def test_a_flipped_bit_anywhere_in_an_archive_is_found(tmp_path: Path) -> None:
    """In the files, and in what stands around them."""
    (tmp_path / "file").write_bytes(random.Random(5).randbytes(300))
    write_archive(tmp_path / "b.tar.xz", {"a": tmp_path / "file", "b": tmp_path / "file"})
    content = (tmp_path / "b.tar.xz").read_bytes()
    draw = random.Random(6)
    for at in range(len(content)):
        flipped = bytearray(content)
        flipped[at] ^= 1 << draw.randrange(8)
        (tmp_path / "b.tar.xz").write_bytes(flipped)
        assert [f.name for f in verify(tmp_path / "b.tar.xz").findings] == ["b.tar.xz"], at


def test_an_archive_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "b.tar.xz", [("a", os.urandom(3000)), ("b", b"2")])
    whole = path.read_bytes()
    for length in (len(whole) - 1, len(whole) - 20, len(whole) // 2, 20):
        path.write_bytes(whole[:length])
        assert said(path)[0].startswith("b.tar.xz: cannot be unpacked: ")


def test_a_full_disk_is_no_fault_of_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    path = packed(tmp_path / "b.tar.xz", [("a", b"x")])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extract", full)
    with pytest.raises(ArtifactError, match=f"{temporary}.*No space left on device"):
        verify(path)
