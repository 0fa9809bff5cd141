"""``python -m tests.golden.make_campaigns [NAME ...]``: analyse the golden campaigns, all or those named, and write ``data/`` anew.

What changed is printed, leaf by leaf: it belongs into the commit that changed it, and nowhere else. A renamed key needs no new data but a
line in ``key_map.py``. ``--show NAME`` prints what is kept.
"""

import json
import lzma
import sys
import tempfile
from pathlib import Path
from typing import Any

from .campaigns import CAMPAIGNS
from .leaves import column_differences, columns_of, differences, leaves_of

DATA = Path(__file__).parent / "data"
SUFFIX = ".json.xz"


def found(name: str, folder: Path) -> Any:
    """What the code makes of a campaign now, as a file would hold it."""
    made = CAMPAIGNS[name](folder)
    return {
        part: {"leaves": leaves_of(document), "columns": columns_of(table)}
        for part, (document, table) in made.items()
    }


def kept(name: str) -> Any:
    path = DATA / f"{name}{SUFFIX}"
    return json.loads(lzma.decompress(path.read_bytes())) if path.is_file() else {}


def compared(old: Any, new: Any) -> list[str]:
    """A line for each difference of two files' contents."""
    lines = [
        f"{part}: is {'not there' if part in old else 'not kept'}" for part in sorted(old.keys() ^ new.keys())
    ]
    for part in sorted(old.keys() & new.keys()):
        lines += [f"{part} > {line}" for line in differences(old[part]["leaves"], new[part]["leaves"])]
        lines += column_differences(old[part]["columns"], new[part]["columns"], f"{part}.csv")
    return lines


def packed(value: Any) -> bytes:
    """The same bytes for the same value; leaves in order of path, columns in the table's."""
    ordered = {
        part: {**own, "leaves": dict(sorted(own["leaves"].items()))} for part, own in sorted(value.items())
    }
    text = json.dumps(ordered, indent=0, ensure_ascii=False) + "\n"
    return lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)


def main() -> None:
    if sys.argv[1:2] == ["--show"]:
        print(json.dumps(kept(sys.argv[2]), indent=1, ensure_ascii=False))
        return
    for name in sys.argv[1:] or CAMPAIGNS:
        with tempfile.TemporaryDirectory() as folder:
            new = found(name, Path(folder))
        old = kept(name)
        (DATA / f"{name}{SUFFIX}").write_bytes(packed(new))
        lines = compared(old, new) if old else ["is new"]
        print(f"{name}: {len(lines)} changes", *lines, sep="\n  ")


if __name__ == "__main__":
    main()
