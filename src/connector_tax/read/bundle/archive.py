"""The archive of a bundle: files in a tar that xz compresses, the same bytes for the same files. ``tar -xf`` unpacks it, too."""

import lzma
import os
import stat
import tarfile
from pathlib import Path

from connector_tax.base.artifacts.layout import RECEIPT
from connector_tax.base.errors import ArtifactError
from connector_tax.base.files import writing_failed
from connector_tax.base.opening import MOST_BYTES, open_regular

# Snakemake takes a file of second 0 for one that is not there. Receipts are newer than what was made of them, so that in a checkout
# the code that is there makes it anew.
_TIME_S, _RECEIPT_TIME_S = 315_532_800, 315_619_200  # 1980-01-01 and the day after
# Of 1 to 9: each of more than 6 takes twice the time and memory for a hundredth of the size.
_PRESET = 6
_BLOCK = 1 << 20


class BadArchive(ArtifactError):
    """An archive that is damaged, too large, or holds more than files below its folder."""


def write_archive(target: Path, files: dict[str, Path]) -> None:
    """Write ``files`` (name -> where its content is) to ``target``, whole or not at all.

    Raises:
        ArtifactError: the files are too large, or the disk is full.
    """
    if sum(path.stat().st_size for path in files.values()) > MOST_BYTES:
        raise ArtifactError(
            f"{target}: a bundle holds at most {MOST_BYTES >> 20} MiB of files. Thin the campaign first."
        )
    temporary = target.with_name(f".bundle.{os.getpid()}.partial")
    try:
        with open(temporary, "wb") as out:
            with (
                lzma.open(out, "wb", preset=_PRESET) as packed,
                tarfile.open(fileobj=packed, mode="w") as tar,
            ):
                for name in sorted(files):
                    _add(tar, name, files[name])
            out.flush()
            os.fsync(out.fileno())
        os.replace(temporary, target)
    except OSError as error:
        raise writing_failed(target, error) from error
    finally:
        temporary.unlink(missing_ok=True)


def _add(tar: tarfile.TarFile, name: str, path: Path) -> None:
    with open_regular(path) as source:
        found = os.fstat(source.fileno())
        member = tarfile.TarInfo(name)
        member.size = found.st_size
        member.mtime = _RECEIPT_TIME_S if name.endswith(f"/{RECEIPT}") else _TIME_S
        member.mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
        tar.addfile(member, source)


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of ``archive`` beneath ``folder``, which should be a temporary one: they are as the archive has them.

    Raises:
        FileNotFoundError: there is no archive.
        BadArchive: it is not as ``write_archive`` writes it.
        ArtifactError: it is no regular file, or ``folder`` cannot be written.
    """
    left = MOST_BYTES
    with open_regular(archive) as file:
        try:
            with lzma.open(file) as content, tarfile.open(fileobj=content, mode="r|") as tar:
                for member in tar:
                    left -= member.size
                    if left < 0:
                        raise BadArchive(
                            f"would unpack to more than the {MOST_BYTES >> 20} MiB that a bundle holds"
                        )
                    tar.extract(member, folder, filter="data")
                # The last checksum is behind the last file.
                if len(content.read(_BLOCK)) == _BLOCK:
                    raise BadArchive("holds more behind its last file")
        except (EOFError, OverflowError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
            raise BadArchive(f"cannot be unpacked: {error}. Fetch it once more") from error
        except OSError as error:
            raise writing_failed(folder, error) from error
