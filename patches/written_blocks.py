"""Blocks that earlier versions of connector-tax wrote into vLLM's files: found, and taken out.

They appended one marked block to each of two files and put an emitter beside them. ``remove`` takes out the blocks, whole and alone:
what somebody else changed before, after or around them stays. Today nothing is written into vLLM (``scheduler_step_timing.py``).
Standard library only.
"""

import fcntl
import os
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path

TARGETS = ("v1/core/sched/scheduler.py", "distributed/kv_transfer/kv_connector/factory.py")
EMITTER_NAME = "_connector_tax_step_profile.py"
# As mkstemp names them.
TEMPORARY = re.compile(r"\.connector_tax_[a-z0-9_]{8}\Z")
MARKER = b"# CONNECTOR_TAX_PATCH"
BLOCK = re.compile(
    rb"# CONNECTOR_TAX_PATCH begin original_sha256=[0-9a-f]{64} newline_added=(?P<newline>[01])\n"
    rb"try:\n"
    rb"    from vllm import _connector_tax_step_profile as _connector_tax_profile\n"
    rb"except ImportError:\n"
    rb"    pass\n"
    rb"else:\n"
    rb"    _connector_tax_profile\.install_\w+\(\w+\)\n"
    rb"# CONNECTOR_TAX_PATCH end\n"
)
# What the block imports, as compiled code names it.
IMPORTED = b"_connector_tax_step_profile"
# How compiled code begins that Python never holds against its source: flags 1 behind the magic number, PEP 552.
UNCHECKED = b"\x01\x00\x00\x00"
IN_THE_WAY = (
    "an earlier version of connector-tax wrote its step timing into %s. When nobody measures with that vLLM, take it out: "
    "patches/apply.sh --engine-python PYTHON --revert"
)


class Refused(Exception):
    """Nothing was taken out, or not all of it; the text says why and what to do."""


def status(vllm):
    """``unpatched``; ``patched`` where both files hold a block and the emitter is there; ``half`` with less of it.

    Compiled code with a block in it counts where Python would load it whatever the source says.

    Raises:
        OSError: a file cannot be read.
        Refused: there is no vLLM to look at, or a link that leads nowhere in a file's place.
    """
    absent = [n for n in TARGETS if not (vllm / n).exists()]
    dangling = [n for n in absent if (vllm / n).is_symlink()]
    if dangling:
        raise Refused("%s is a link that leads nowhere" % (vllm / dangling[0]))
    if len(absent) == len(TARGETS):
        raise Refused("%s is no vLLM: it has no %s" % (vllm, " and no ".join(absent)))
    blocks = [MARKER in (vllm / n).read_bytes() for n in TARGETS if (vllm / n).exists()]
    emitter = (vllm / EMITTER_NAME).exists()
    if not any(blocks) and not emitter and not any(unchecked for _, unchecked in compiled(vllm)):
        return "unpatched"
    return "patched" if emitter and len(blocks) == len(TARGETS) and all(blocks) else "half"


def remove(vllm):
    """Take out what ``status`` finds; nothing is touched where there is nothing.

    Raises:
        Refused: somebody measures with this vLLM, a block is not as it was written, or no permission.
    """
    if status(vllm) == "unpatched":
        return
    with locked(vllm):
        users = measuring(vllm)
        if users:
            raise Refused(
                "process %s records steps with %s. Take the blocks out when it has ended"
                % (", ".join(map(str, users)), vllm)
            )
        read = {p: p.read_bytes() for p in (vllm / n for n in TARGETS) if p.exists()}
        wanted = {p: (content, without_block(p, content)) for p, content in read.items()}
        for path, (read, content) in wanted.items():
            replace(path, read, content)
        leftovers = [path for path, _ in compiled(vllm)]
        leftovers += [vllm / EMITTER_NAME, *(vllm / "__pycache__").glob(Path(EMITTER_NAME).stem + ".*.pyc")]
        # Temporary files of a patcher that was killed while it wrote.
        folders = [(vllm / n).parent for n in (*TARGETS, "x")]
        leftovers += [p for f in folders for p in f.glob(".connector_tax_*") if TEMPORARY.match(p.name)]
        for leftover in leftovers:
            try:
                leftover.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise Refused("%s cannot be removed (%s)" % (leftover, error.strerror)) from error


def compiled(vllm):
    """Compiled code of the two files with a block in it, each with whether Python loads it without looking at its source."""
    found = []
    for target in TARGETS:
        path = vllm / target
        for code in sorted((path.parent / "__pycache__").glob(path.stem + ".*.pyc")):
            content = code.read_bytes() if code.is_file() else b""
            if IMPORTED in content:
                found.append((code, content[4:8] == UNCHECKED))
    return found


def without_block(path, content):
    """``content`` of the file without our block; unchanged without one.

    Raises:
        Refused: there is a marker, and not exactly one block as we wrote them.
    """
    if MARKER not in content:
        return content
    found = list(BLOCK.finditer(content))
    if len(found) != 1 or content.count(MARKER) != 2:
        raise Refused(
            "%s holds markers of connector-tax, and its block is not as it was written. "
            "Take the lines between the markers out by hand, or reinstall vLLM" % path
        )
    before, after = content[: found[0].start()], content[found[0].end() :]
    # The file had no line end at its end. Where somebody went on after the block, their first line needs one.
    if found[0]["newline"] == b"1" and not after:
        before = before[:-1]
    return before + after


def replace(path, read, content):
    """Write a file anew, atomically, with its owner and mode; behind a symbolic link the file that it names.

    Args:
        read: what it held when ``content`` was made of it.

    Raises:
        Refused: somebody changed it meanwhile; no permission, a read-only file system, a full disk.
    """
    path = path.resolve()
    if read == content:
        return
    try:
        handle, temporary = tempfile.mkstemp(dir=str(path.parent), prefix=".connector_tax_")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            before = path.stat()
            if os.geteuid() == 0:
                os.chown(temporary, before.st_uid, before.st_gid)
            os.chmod(temporary, before.st_mode & 0o7777)
            if path.read_bytes() != read:
                raise Refused("%s was changed by somebody just now; try again" % path)
            os.replace(temporary, str(path))
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise Refused(
            "%s cannot be written (%s). Run this as who owns it" % (path, error.strerror)
        ) from error


def measuring(vllm):
    """Ids of processes that record steps with this installation, as far as this user may see them.

    They have a step log in their environment, and a file of the environment mapped that vLLM is installed in.
    """
    found = []
    mapped = (str(vllm.resolve().parent) + os.sep).encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            records = b"AGENTIC_STEP_LOG_PATH=" in (entry / "environ").read_bytes()
            if records and mapped in (entry / "maps").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # ended meanwhile, or another user's
    return sorted(found)


@contextmanager
def locked(vllm):
    """One of us at a time per installation; a lock on the folder itself leaves no file behind.

    Raises:
        Refused: the folder cannot be locked, as on a file system without locks.
    """
    try:
        descriptor = os.open(str(vllm), os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Refused("%s cannot be opened (%s)" % (vllm, error.strerror)) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError as error:
            raise Refused("%s cannot be locked (%s)" % (vllm, error.strerror)) from error
        yield
    finally:
        os.close(descriptor)
