"""``manifest-sha256.txt`` of a bundle: name and SHA-256 of every other file in it, in the form of ``sha256sum -c``.

The last line is a comment that holds the checksum of the lines above it, so that a change of the list is told apart from one of a file.
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable

from connector_tax.base.opening import is_bare

MANIFEST = "manifest-sha256.txt"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_SEAL = "# sha256 of the lines above: "


def manifest_text(sha256: dict[str, str]) -> str:
    """The list, in order of name."""
    lines = "".join(f"{sha256[name]}  {name}\n" for name in sorted(sha256))
    return f"{lines}{_SEAL}{_digest(lines.encode())}\n"


def read_manifest(content: bytes) -> dict[str, str] | None:
    """Name -> SHA-256; None where the list is not as it was written."""
    at = content.rfind(_SEAL.encode())
    if at < 0 or content[at:] != f"{_SEAL}{_digest(content[:at])}\n".encode():
        return None
    try:
        lines = content[:at].decode().split("\n")[:-1]
    except UnicodeDecodeError:
        return None
    found = [_LINE.fullmatch(line) for line in lines]
    listed = {match[2]: match[1] for match in found if match}
    return listed if len(listed) == len(lines) else None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def why_no_name(name: str) -> str | None:
    """What keeps ``name`` from being that of a file in a bundle; None for a path that stays inside on every system."""
    if not name.isprintable():
        return "has a name with characters that cannot be shown"
    if "\\" in name or ":" in name or not all(map(is_bare, name.split("/"))):
        return "has a name that may lead out of the folder: only plain parts, without a dot in front"
    return None


def clashes(names: Iterable[str]) -> list[tuple[str, str]]:
    """(name, why) of those that some file system would take for another one's."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    found = []
    for name in names:
        key = unicodedata.normalize("NFC", name).casefold()
        parts = key.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts))]
        if key in seen:
            same = seen[key] == name
            found.append((name, "stands there twice" if same else f"differs from {seen[key]} in case only"))
        elif key in folders or any(folder in seen for folder in above):
            found.append((name, "is a file and a folder"))
        seen.setdefault(key, name)
        spelled = name.split("/")
        for n, folder in enumerate(above, start=1):
            written = "/".join(spelled[:n])
            if folders.setdefault(folder, written) != written:
                found.append((name, f"lies in a folder that differs from {folders[folder]} in case only"))
                break
    return found
