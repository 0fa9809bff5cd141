"""``scripts/unpack_engine.sh``: pieces that were carried to a host become an interpreter, once."""

import random
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "unpack_engine.sh"


def unpack(
    parts: Path, folder: Path, python: Path | str = sys.executable
) -> "subprocess.CompletedProcess[str]":
    environment = {"PYTHON": str(python), "PATH": "/usr/bin:/bin"}
    return subprocess.run([SCRIPT, parts, folder], env=environment, capture_output=True, text=True)


def carry(tmp_path: Path, version: str, kind: str = "xz") -> Path:
    """A package ``carried`` in three pieces, and a ``yaml`` that stands before the host's own."""
    for name, text in (("carried", f"VERSION = {version!r}\n"), ("yaml", "OWN = False\n")):
        (tmp_path / "site" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name / "__init__.py").write_text(text)
    archive = tmp_path / "site.tar"
    with tarfile.open(archive, f"w:{kind}") as tar:  # type: ignore[call-overload]
        tar.add(tmp_path / "site", ".")
    data, parts = archive.read_bytes(), tmp_path / "parts"
    parts.mkdir(exist_ok=True)
    third = len(data) // 3 + 1
    for k in range(3):
        (parts / f"part-{k:02d}").write_bytes(data[k * third : (k + 1) * third])
    return parts


@pytest.mark.parametrize("kind", ["xz", "gz"])
def test_pieces_become_an_interpreter_whose_packages_come_first(tmp_path: Path, kind: str) -> None:
    engine = tmp_path / "the host's engine"
    made = unpack(carry(tmp_path, "1", kind), engine)
    assert made.returncode == 0, made.stderr
    python = made.stdout.removesuffix("\n")
    asked = "import carried, yaml, sys; print(carried.VERSION, yaml.OWN, sys.prefix)"
    said = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said == f"1 False {engine / 'env'}\n"


def test_what_was_unpacked_is_used_again_and_other_pieces_are_unpacked_anew(tmp_path: Path) -> None:
    parts, engine = carry(tmp_path, "1"), tmp_path / "engine"
    python = unpack(parts, engine).stdout.strip()
    mark = engine / "packages" / "mark"
    mark.touch()
    assert unpack(parts, engine).stdout.strip() == python
    assert mark.exists()
    unpack(carry(tmp_path, "2"), engine)
    assert not mark.exists()
    said = subprocess.run(
        [python, "-c", "import carried; print(carried.VERSION)"], capture_output=True, text=True
    )
    assert said.stdout == "2\n"


def test_a_missing_piece_is_one_message_and_leaves_nothing_that_counts(tmp_path: Path) -> None:
    parts, engine = carry(tmp_path, "1"), tmp_path / "engine"
    last = (parts / "part-02").read_bytes()
    (parts / "part-02").unlink()
    cut = unpack(parts, engine)
    assert cut.returncode == 2
    assert "error: 2 pieces in " in cut.stderr and "is one missing, cut or damaged?" in cut.stderr
    (parts / "part-02").write_bytes(last)
    assert unpack(parts, engine).returncode == 0
    none = unpack(tmp_path, engine)
    assert none.returncode == 2 and "holds no part-*" in none.stderr


def test_a_damaged_piece_is_refused(tmp_path: Path) -> None:
    """Also where the bytes still unpack: content that does not compress stands in the archive as it is, and is nothing but other content."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "noise.bin").write_bytes(random.Random(1).randbytes(300_000))
    whole = (carry(tmp_path, "1") / "part-01").read_bytes()
    for place in range(1000, len(whole), len(whole) // 4):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        (tmp_path / "parts" / "part-01").write_bytes(damaged)
        made = unpack(tmp_path / "parts", tmp_path / "engine")
        assert made.returncode == 2, place
        assert not (tmp_path / "engine" / ".complete").exists()
