"""Apply or revert the step-timing patch on an installed vLLM.

    python patches/scheduler_step_timing.py --engine-python /path/to/venv/bin/python [--revert | --status]

Appends one marked block to each of two vLLM files and puts ``_step_profile.py`` beside them; revert
takes exactly that away, byte for byte (the original's SHA-256 is in the marker and is checked).
Both ways are idempotent, and a half-done or outdated state is brought to the wanted one. Prints one JSON
object; where the patch does not fit, ``step_timing_available`` is false with the reason, vLLM is left
as it was and the exit status is still 0, since the campaign goes on without step records.

Never run it while an engine of this installation is starting: its processes import these files one
after the other. Standard library only.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

MARKER = b"# CONNECTOR_TAX_PATCH"
EMITTER = Path(__file__).with_name("_step_profile.py")
EMITTER_NAME = "_connector_tax_step_profile.py"
BLOCK = """{marker} begin original_sha256={sha} newline_added={newline}
try:
    from vllm import _connector_tax_step_profile as _connector_tax_profile
except ImportError:
    pass
else:
    _connector_tax_profile.{install}({cls})
{marker} end
"""
TARGETS = {
    "v1/core/sched/scheduler.py": (
        "install_scheduler",
        "Scheduler",
        ("class Scheduler", "def schedule(", "def update_from_output(", "def get_request_counts("),
    ),
    "distributed/kv_transfer/kv_connector/factory.py": (
        "install_factory",
        "KVConnectorFactory",
        ("class KVConnectorFactory", "def create_connector("),
    ),
}


class DoesNotFit(Exception):
    """The patch cannot be applied or taken away here; the text says why."""


def find_vllm(engine_python):
    """The folder of the package ``vllm`` of that interpreter, without importing vLLM."""
    code = "import importlib.util as u; s = u.find_spec('vllm'); print(s.submodule_search_locations[0] if s else '')"
    try:
        found = subprocess.run([engine_python, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DoesNotFit("%s cannot be run (%s)" % (engine_python, error)) from error
    folder = found.stdout.strip()
    if found.returncode != 0 or not folder:
        raise DoesNotFit("%s has no vllm" % engine_python)
    return Path(folder)


def apply(vllm):
    """Bring both files to patched; nothing is written unless both fit.

    Raises:
        DoesNotFit: wrong vLLM, edited files, or no permission.
    """
    wanted = {}
    for name, (install, cls, needles) in TARGETS.items():
        original = original_bytes(vllm / name)
        text = original.decode()
        missing = [n for n in needles if n not in text]
        if missing:
            raise DoesNotFit("%s has no %s" % (vllm / name, " and no ".join(map(repr, missing))))
        newline = b"" if original.endswith(b"\n") else b"\n"
        block = BLOCK.format(
            marker=MARKER.decode(), sha=sha256(original), newline=len(newline), install=install, cls=cls
        )
        wanted[vllm / name] = original + newline + block.encode()
    try:
        # The emitter first: a block without it does nothing, it without a block is never imported.
        write_if_changed(vllm / EMITTER_NAME, EMITTER.read_bytes())
        for path, content in wanted.items():
            write_if_changed(path, content)
    except DoesNotFit:
        with suppress(DoesNotFit):  # what could not be written cannot be taken back either; the state says so
            revert(vllm)
        raise


def revert(vllm):
    """Bring both files to what the wheel installed, and remove the emitter.

    Raises:
        DoesNotFit: a file was edited after it was patched, or no permission.
    """
    for name in TARGETS:
        path = vllm / name
        if path.exists():
            write_if_changed(path, original_bytes(path))
    for leftover in [vllm / EMITTER_NAME, *(vllm / "__pycache__").glob(Path(EMITTER_NAME).stem + ".*.pyc")]:
        try:
            leftover.unlink(missing_ok=True)
        except OSError as error:
            raise DoesNotFit("%s cannot be removed (%s)" % (leftover, error.strerror)) from error


def status(vllm):
    """``patched``, ``unpatched`` or ``half``."""
    marked = [MARKER in (vllm / n).read_bytes() for n in TARGETS if (vllm / n).exists()]
    marked.append((vllm / EMITTER_NAME).exists())
    if not any(marked):
        return "unpatched"
    return "patched" if all(marked) else "half"


def original_bytes(path):
    """The file without our block, checked against the checksum in the block's marker."""
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise DoesNotFit("%s does not exist" % path) from error
    if MARKER not in content:
        return content
    original, _, rest = content.partition(MARKER + b" begin")
    first_line = rest.split(b"\n", 1)[0].decode()
    recorded = re.search(r"original_sha256=([0-9a-f]{64}) newline_added=([01])", first_line)
    if recorded is None:
        raise DoesNotFit("%s holds a marker that is not ours; reinstall vLLM" % path)
    if recorded.group(2) == "1":
        original = original[:-1]
    if sha256(original) != recorded.group(1):
        raise DoesNotFit("%s was edited after it was patched; reinstall vLLM" % path)
    return original


def write_if_changed(path, content):
    """Replace ``path`` atomically, keeping its mode; leave it alone if it holds ``content`` already."""
    if path.exists() and path.read_bytes() == content:
        return
    try:
        mode = path.stat().st_mode if path.exists() else 0o644
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".connector_tax_")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            os.chmod(temporary, mode & 0o7777)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise DoesNotFit(
            "%s cannot be written (%s). Run this as who owns it, or install vLLM where you may write"
            % (path, error.strerror)
        ) from error


def sweep(vllm):
    """Remove temporary files that a kill in the middle of a write left behind."""
    for folder in {(vllm / n).parent for n in TARGETS} | {vllm}:
        for leftover in folder.glob(".connector_tax_*"):
            leftover.unlink(missing_ok=True)


@contextmanager
def lock(vllm):
    """One patcher per installation; a lock on the folder itself leaves no file behind."""
    descriptor = os.open(vllm, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def checksums(vllm):
    return {name: sha256((vllm / name).read_bytes()) for name in TARGETS if (vllm / name).exists()}


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def run(action, engine_python=None, vllm=None):
    """Do ``apply``, ``revert`` or ``status``; returns what is printed."""
    report = {"action": action, "step_timing_available": False, "reason": None, "state": None, "files": []}
    try:
        folder = vllm or find_vllm(engine_python)
        report["vllm"] = str(folder)
        with lock(folder):
            before = checksums(folder)
            try:
                if action != "status":
                    sweep(folder)
                    {"apply": apply, "revert": revert}[action](folder)
            finally:
                report["state"] = status(folder)
                report["files"] = [
                    {"path": name, "sha256_before": before[name], "sha256_after": after}
                    for name, after in checksums(folder).items()
                ]
    except (DoesNotFit, OSError) as error:
        report["reason"] = str(error)
    report["step_timing_available"] = report["state"] == "patched" and report["reason"] is None
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--engine-python", default=os.environ.get("ENGINE_PYTHON") or sys.executable)
    parser.add_argument(
        "--vllm", type=Path, help="the package's folder, instead of asking an interpreter for it"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--revert", action="store_true")
    what.add_argument("--status", action="store_true")
    args = parser.parse_args()
    action = "revert" if args.revert else "status" if args.status else "apply"
    report = run(action, args.engine_python, args.vllm)
    print(json.dumps(report, indent=2))
    # A revert that failed leaves a patched vLLM behind: that one must be heard.
    return 1 if action == "revert" and report["reason"] and "has no vllm" not in report["reason"] else 0


if __name__ == "__main__":
    sys.exit(main())
