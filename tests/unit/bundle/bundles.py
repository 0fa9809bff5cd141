"""Archives for tests: one packed by hand in the form of a bundle, with whatever a test wants to be wrong in it."""

import hashlib
import io
import stat
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from connector_tax.read.bundle.archive import _COMMENT
from connector_tax.read.bundle.listing import MANIFEST, manifest_text

Change = Callable[[zipfile.ZipInfo], None]


def sealed(content: bytes) -> bytes:
    """With the checksum at its end written anew: what is wrong is then found by its form alone."""
    return content[:-64] + hashlib.sha256(content[:-64]).hexdigest().encode()


def packed(path: Path, members: Sequence[tuple[str, bytes]], *, change: Change | None = None) -> Path:
    """``members`` and a manifest of them as a sealed archive; ``change`` alters what is said of the first one."""
    listed = {name: hashlib.sha256(content).hexdigest() for name, content in members}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", allowZip64=False) as archive:
        archive.comment = _COMMENT + b"0" * 64
        for number, (name, content) in enumerate([*members, (MANIFEST, manifest_text(listed).encode())]):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            if change is not None and number == 0:
                change(info)
            archive.writestr(info, content)
    path.write_bytes(sealed(out.getvalue()))
    return path
