"""What a writer leaves that is killed in the middle goes when its file is written the next time."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from connector_tax.base.files import write_bytes, write_named, write_text

WRITER = """
import os, sys, time
from pathlib import Path
from connector_tax.base import files

def slow():
    yield b"a half"
    print("writing", flush=True)
    time.sleep(60)

files.write_pieces(Path(sys.argv[1]), slow())
"""


def test_what_a_user_named_goes_into_pipes_and_through_links(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "file")
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        write_named(pipe, "said")
        assert reader.communicate(timeout=20)[0] == b"said"
    write_named(link, "said")
    assert pipe.is_fifo() and link.is_symlink() and (tmp_path / "file").read_text() == "said"


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_what_a_killed_writer_left_goes_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    file = tmp_path / "a [1].parquet"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == b"writing\n"
        both = names(tmp_path)
        assert len(both) == 2 and all(n.startswith(".a [1].parquet.") and n.endswith(".tmp") for n in both)
        write_bytes(file, b"whole")
        assert names(tmp_path) == [*both, file.name]
        writers[0].send_signal(signal.SIGKILL)
        writers[0].wait()
        write_bytes(file, b"whole again")
        (left,) = set(names(tmp_path)) - {file.name}
        assert left in both and file.read_bytes() == b"whole again"
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()


def test_names_of_others_stay(tmp_path: Path) -> None:
    """A hidden file of another name, a folder, a link and a pipe of such a name."""
    others = (
        ".b.json.01234567.tmp",
        ".a.json.tmp",
        ".a.json.0123456.tmp",
        ".a.json.0123456g.tmp",
        "a.json.01234567.tmp",
    )
    for name in others:
        (tmp_path / name).touch()
    (tmp_path / ".a.json.00000000.tmp").mkdir()
    (tmp_path / ".a.json.00000001.tmp").symlink_to(tmp_path / others[0])
    os.mkfifo(tmp_path / ".a.json.00000002.tmp")
    before = names(tmp_path)
    write_text(tmp_path / "a.json", "{}")
    assert names(tmp_path) == sorted([*before, "a.json"])


def test_a_file_system_that_does_not_lock_keeps_a_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(handle: object, operation: int) -> None:
        raise OSError("no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / ".a.01234567.tmp").touch()
    write_text(tmp_path / "a", "x")
    assert names(tmp_path) == [".a.01234567.tmp", "a"]


def test_a_name_that_was_taken_for_a_half_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's cleaning comes between a new file and its lock."""
    taken = []
    flock = fcntl.flock

    def first_too_late(handle: object, operation: int) -> None:
        if not taken:
            (new,) = tmp_path.iterdir()
            taken.append(new)
            new.unlink()
        flock(handle, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", first_too_late)
    write_text(tmp_path / "a", "x")
    assert taken and names(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "x"


def test_a_name_that_its_writer_made_again_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clean at once: the first removed the new file before its lock, and the second locks what the first removed."""
    half = tmp_path / ".a.01234567.tmp"
    half.touch()
    flock = fcntl.flock

    def made_again(handle: object, operation: int) -> None:
        if operation & fcntl.LOCK_NB:
            half.unlink()
            half.write_text("of a writer that lives")
        flock(handle, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", made_again)
    write_text(tmp_path / "a", "x")
    assert half.read_text() == "of a writer that lives"
