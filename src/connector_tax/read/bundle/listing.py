"""``manifest-sha256.txt`` of a bundle: name and SHA-256 of every other file in it, in the form of ``sha256sum -c``.

The last line is a comment that holds the checksum of the lines above it, so that a change of the list is told apart from one of a file.
"""

import hashlib
import re

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
