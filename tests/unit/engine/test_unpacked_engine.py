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


@pytest.mark.parametrize("kind", ["xz", "gz"])
def test_a_damaged_piece_is_refused(tmp_path: Path, kind: str) -> None:
    """Also where the bytes still unpack: content that does not compress stands in the archive as it is, and is nothing but other content."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "noise.bin").write_bytes(random.Random(1).randbytes(300_000))
    whole = (carry(tmp_path, "1", kind) / "part-01").read_bytes()
    for place in range(1000, len(whole), len(whole) // 4):
        damaged = bytearray(whole)
        damaged[place] ^= 0x55
        (tmp_path / "parts" / "part-01").write_bytes(damaged)
        made = unpack(tmp_path / "parts", tmp_path / "engine")
        assert made.returncode == 2, place
        assert not (tmp_path / "engine" / ".complete").exists()


def test_packages_of_a_python3_that_is_a_virtual_environments_are_seen_behind_the_carried(
    tmp_path: Path,
) -> None:
    """As on hosts whose torch is in an environment: one that is made from it sees the base interpreter's packages alone."""
    host = tmp_path / "host"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", host], check=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = host / "bin" / "python"
    site = Path(subprocess.run([python, "-c", ask], capture_output=True, text=True).stdout.strip())
    (site / "only_there.py").touch()
    (site / "carried.py").write_text("VERSION = 'of the host'\n")
    made = unpack(carry(tmp_path, "1"), tmp_path / "engine", python)
    assert made.returncode == 0, made.stderr
    asked = (
        "import carried, only_there, sys; print(carried.VERSION); print(only_there.__file__);"
        "print(*sys.path, sep='\\n')"
    )
    said = subprocess.run([made.stdout.strip(), "-c", asked], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    version, there, *path = said.stdout.splitlines()
    assert version == "1"
    assert there == str(site / "only_there.py")
    assert path.count(str(tmp_path / "engine" / "packages")) == 1
    base = subprocess.run(
        [sys._base_executable, "-c", "import site; print(*site.getsitepackages(), sep='\\n')"],  # type: ignore[attr-defined]
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    seen = [path.index(folder) for folder in base if Path(folder).is_dir()]
    assert seen and min(seen) > path.index(str(site))
