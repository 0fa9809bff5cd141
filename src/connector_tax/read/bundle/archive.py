"""The one form of zip that a bundle has: written here, read back strictly, nothing else accepted.

Members are deflated, in order of name, without times and extra fields, one behind the other; the archive's comment ends with the SHA-256
of every byte before it. A reader that takes only this form has no room for what hostile archives are made of (overlaps, links, encryption,
sizes that lie), and finds every flipped bit, also one that no member uses.
"""

import hashlib
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import writing_failed
from connector_tax.base.opening import MOST_STREAM_BYTES, open_regular, printable
from connector_tax.read.bundle.listing import clashes, why_no_name

# Beyond these a zip needs its 64-bit form.
MOST_ARCHIVE_BYTES = (4 << 30) - 1
MOST_MEMBERS = 65_534
MOST_CONTENT_BYTES = 4 * MOST_STREAM_BYTES
# Of all contents to the archive; step records have some 20, source code 4.
MOST_RATIO = 200
_COMMENT = b"connector-tax bundle; sha256 of all before: "
_TIME = (1980, 1, 1, 0, 0, 0)
_DATE_FIELD = (1 << 5) | 1
_LOCAL = struct.Struct("<4sHHHHHLLLHH")
_CENTRAL = struct.Struct("<4sHHHHHHLLLHHHHHLL")
_END = struct.Struct("<4sHHHHLLH")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one file of a bundle, or with the archive."""

    name: str
    what: str

    def __str__(self) -> str:
        name = self.name if self.name.isprintable() else ascii(self.name)
        return f"{printable(name, 300)}: {printable(self.what, 500)}"


@dataclass(frozen=True, slots=True)
class Member:
    """
    Attributes:
        begin: of its local header in the archive, bytes.
        local: what that header has to be.
    """

    name: str
    begin: int
    local: bytes
    crc: int
    packed_bytes: int
    content_bytes: int
    mode: int

    @property
    def end(self) -> int:
        return self.begin + len(self.local) + self.packed_bytes


def write_archive(target: Path, files: dict[str, Path]) -> None:
    """Write ``files`` (name -> where its content is) to ``target``, whole or not at all.

    Raises:
        ArtifactError: too large for a plain zip, or the disk is full.
    """
    if len(files) > MOST_MEMBERS:
        raise ArtifactError(
            f"{target}: {len(files)} files, a bundle holds {MOST_MEMBERS}. Thin the campaign first."
        )
    temporary = target.with_name(f".bundle.{os.getpid()}.partial")
    try:
        with open(temporary, "wb") as out, zipfile.ZipFile(out, "w", allowZip64=False) as archive:
            archive.comment = _COMMENT + b"0" * 64
            for name in sorted(files):
                _write_member(archive, name, files[name])
        _seal(temporary)
        os.replace(temporary, target)
    except (zipfile.LargeZipFile, struct.error) as error:
        raise ArtifactError(f"{target}: would be larger than 4 GiB. Thin the campaign first.") from error
    except OSError as error:
        raise writing_failed(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _write_member(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    with open_regular(path, MOST_STREAM_BYTES - 1) as source:
        found = os.fstat(source.fileno())
        about = zipfile.ZipInfo(name, _TIME)
        about.create_system = 3
        about.compress_type = zipfile.ZIP_DEFLATED
        about.external_attr = (stat.S_IFREG | (0o755 if found.st_mode & stat.S_IXUSR else 0o644)) << 16
        about.file_size = found.st_size
        with archive.open(about, "w") as member:
            shutil.copyfileobj(source, member, _BLOCK)


def _seal(path: Path) -> None:
    with open(path, "r+b") as file:
        end = os.fstat(file.fileno()).st_size - 64
        digest = _digest(file, end)
        file.seek(end)
        file.write(digest)
        file.flush()
        os.fsync(file.fileno())


def _digest(file: BinaryIO, end: int) -> bytes:
    digest = hashlib.sha256()
    file.seek(0)
    while end > 0 and (block := file.read(min(_BLOCK, end))):
        digest.update(block)
        end -= len(block)
    return digest.hexdigest().encode()


class Archive:
    """A bundle's zip, opened; ``findings`` is what is wrong with its form, and ``members`` what can be read of it."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            FileNotFoundError: there is nothing.
            ArtifactError: it is no regular file, or larger than a bundle is.
        """
        self.path = path
        self._file = open_regular(path, MOST_ARCHIVE_BYTES)
        self._bytes = os.fstat(self._file.fileno()).st_size
        self.members: list[Member] = []
        self.findings: list[Finding] = []
        self.sealed = self._is_sealed()
        self._read_directory()

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def about(self, what: str) -> Finding:
        """A finding on the archive itself."""
        return Finding(self.path.name, what)

    def _is_sealed(self) -> bool:
        end = max(0, self._bytes - 64)
        digest = _digest(self._file, end)
        return self._at(end, 64) == digest

    def _at(self, begin: int, length: int) -> bytes:
        self._file.seek(begin)
        return self._file.read(length)

    def _read_directory(self) -> None:
        """Each entry that has the form of ``write_archive``; what has another form is a finding."""
        comment_bytes = len(_COMMENT) + 64
        at = self._bytes - _END.size - comment_bytes
        if at < 0 or self._at(at + _END.size, len(_COMMENT)) != _COMMENT:
            self.findings.append(
                self.about("does not end as a bundle does: it is cut, changed or packed anew")
            )
            return
        magic, *disks, here, count, length, begin, said = _END.unpack(self._at(at, _END.size))
        if (magic, disks, here, begin + length, said) != (b"PK\5\6", [0, 0], count, at, comment_bytes):
            self.findings.append(self.about("its last record was changed"))
            return
        if count > MOST_MEMBERS or length > count * (_CENTRAL.size + 4096):
            self.findings.append(self.about("its directory is larger than that of a bundle"))
            return
        self._read_entries(self._at(begin, length), count)
        self._check_sizes()
        self._check_places(begin)
        self.findings += [Finding(*found) for found in clashes(m.name for m in self.members)]

    def _read_entries(self, directory: bytes, count: int) -> None:
        at = 0
        for number in range(1, count + 1):
            fields = directory[at : at + _CENTRAL.size]
            if len(fields) < _CENTRAL.size or fields[:4] != b"PK\1\2":
                self.findings.append(self.about(f"entry {number} of its directory was changed"))
                return
            name_bytes, extra_bytes, comment_bytes = _CENTRAL.unpack(fields)[10:13]
            name = directory[at + _CENTRAL.size : at + _CENTRAL.size + name_bytes]
            at += _CENTRAL.size + name_bytes + extra_bytes + comment_bytes
            self._take(fields, name, number)
        if at != len(directory):
            self.findings.append(self.about("its directory was changed"))

    def _take(self, fields: bytes, raw: bytes, number: int) -> None:
        (
            _,
            made,
            needs,
            flags,
            method,
            time,
            date,
            crc,
            packed,
            size,
            *lengths,
            disk,
            inner,
            outer,
            begin,
        ) = _CENTRAL.unpack(fields)
        try:
            name = raw.decode("ascii" if not flags & 0x800 else "utf-8")
        except UnicodeDecodeError:
            self.findings.append(self.about(f"the name in entry {number} of its directory was changed"))
            return
        mode = outer >> 16
        if why := why_no_name(name):
            what = why
        elif flags & 1:
            what = "is encrypted"
        elif stat.S_ISLNK(mode):
            what = "is a link"
        elif (made, needs, flags, method, time, date, lengths[1:], disk, inner, outer) != (
            (3 << 8) | 20, 20, 0 if name.isascii() else 0x800, 8, 0, _DATE_FIELD, [0, 0], 0, 0, mode << 16,
        ) or mode not in (stat.S_IFREG | 0o644, stat.S_IFREG | 0o755):  # fmt: skip
            what = "its entry in the directory was changed"
        elif size > MOST_STREAM_BYTES:
            what = f"says it holds {size} bytes, a file of a bundle has at most {MOST_STREAM_BYTES}"
        else:
            local = _LOCAL.pack(b"PK\3\4", needs, flags, method, time, date, crc, packed, size, len(raw), 0)
            self.members.append(Member(name, begin, local + raw, crc, packed, size, mode))
            return
        self.findings.append(Finding(name, what))

    def _check_sizes(self) -> None:
        total = sum(member.content_bytes for member in self.members)
        if total > min(MOST_CONTENT_BYTES, MOST_RATIO * self._bytes):
            self.findings.append(
                self.about(
                    f"would unpack to {total} bytes, more than {MOST_RATIO} times its own or than {MOST_CONTENT_BYTES}"
                )
            )
            self.members = []

    def _check_places(self, directory: int) -> None:
        """One behind the other, in order of name, without gaps; with an entry left out for its form, gaps are no news."""
        whole = not self.findings
        end = 0
        for member in self.members:
            if member.begin != end if whole else member.end > directory:
                self.findings.append(Finding(member.name, "does not begin where the file before it ends"))
            end = member.end
        if whole and end != directory:
            self.findings.append(self.about("holds bytes that belong to no file"))
        if whole and [m.name for m in self.members] != sorted(m.name for m in self.members):
            self.findings.append(self.about("its directory is not in order of name"))

    def content(self, member: Member) -> Iterator[bytes]:
        """What ``member`` holds, in pieces.

        Raises:
            ArtifactError: its header, data or size are not as its entry in the directory says.
        """
        if self._at(member.begin, len(member.local)) != member.local:
            raise ArtifactError("its header in the archive was changed")
        left, size, crc = member.packed_bytes, 0, 0
        inflate = zlib.decompressobj(-15)
        try:
            data = b""
            while not inflate.eof:
                if not data and left:
                    # Not where the last piece ended by itself: whoever takes a piece may read elsewhere before the next.
                    self._file.seek(member.begin + len(member.local) + member.packed_bytes - left)
                    data = self._file.read(min(_BLOCK, left))
                    left -= len(data)
                piece = inflate.decompress(data, _BLOCK)
                ended = not data and not piece
                data = inflate.unconsumed_tail
                size += len(piece)
                crc = zlib.crc32(piece, crc)
                if ended or size > member.content_bytes:
                    break
                yield piece
        except zlib.error as error:
            raise ArtifactError("its compressed data were changed") from error
        if size > member.content_bytes:
            raise ArtifactError(f"holds more than the {member.content_bytes} bytes that it says")
        if (
            not inflate.eof
            or left
            or inflate.unused_data
            or (size, crc) != (member.content_bytes, member.crc)
        ):
            raise ArtifactError("its compressed data were changed")
