"""Finds and removes blocks that earlier versions of connector-tax wrote into vLLM's files.

They appended one marked block to each of two files and added an emitter module. ``remove`` takes out only
the blocks: other changes before, after or around them stay. Today nothing is written into vLLM
(``scheduler_step_timing.py``). Standard library only.
"""

import os
import re
import shutil

TARGETS = ("v1/core/sched/scheduler.py", "distributed/kv_transfer/kv_connector/factory.py")
EMITTER_NAME = "_connector_tax_step_profile.py"
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
IN_THE_WAY = (
    "an earlier version of connector-tax wrote its step timing into %s. When nobody measures with that vLLM,"
    " take it out: patches/apply.sh --engine-python PYTHON --revert"
)


class Refused(Exception):
    """Nothing or not everything was removed; the text says why and what to do."""


def read(vllm):
    """Return path -> content of those of the two files that exist.

    Raises:
        OSError: a file cannot be read.
        Refused: there is no vLLM.
    """
    there = [vllm / name for name in TARGETS if os.path.lexists(str(vllm / name))]
    if not there:
        raise Refused("%s is no vLLM: it has no %s" % (vllm, " and no ".join(TARGETS)))
    return {path: path.read_bytes() for path in there}


def status(vllm):
    """Return ``unpatched``, ``patched`` (both blocks and the emitter) or ``half`` (only some of it)."""
    blocks = [MARKER in content for content in read(vllm).values()]
    found = [*blocks, (vllm / EMITTER_NAME).exists()]
    if not any(found):
        return "unpatched"
    return "patched" if all(found) and len(blocks) == len(TARGETS) else "half"


def remove(vllm):
    """Remove what ``status`` finds, if anything.

    Raises:
        Refused: a block was modified, or permission is missing.
    """
    wanted = {path: without_block(path, content) for path, content in read(vllm).items() if MARKER in content}
    try:
        for path, content in wanted.items():
            replace(path.resolve(), content)
        for leftover in [vllm / EMITTER_NAME, *vllm.glob("__pycache__/_connector_tax_step_profile.*.pyc")]:
            if leftover.exists():
                leftover.unlink()
    except OSError as error:
        raise Refused(
            "%s cannot be written (%s). Run this as who owns it" % (error.filename, error.strerror)
        ) from error


def without_block(path, content):
    """Return ``content`` without our block.

    Raises:
        Refused: there is not exactly one block as we wrote it.
    """
    found = list(BLOCK.finditer(content))
    if len(found) != 1 or content.count(MARKER) != 2:
        raise Refused(
            "%s holds markers of connector-tax, and its block is not as it was written. "
            "Take the lines between the markers out by hand, or reinstall vLLM" % path
        )
    before, after = content[: found[0].start()], content[found[0].end() :]
    # We added a line end to a file without one. Remove it, unless somebody added lines after the block.
    if found[0]["newline"] == b"1" and not after:
        before = before[:-1]
    return before + after


def replace(path, content):
    """Rewrite a file atomically, with its owner and mode."""
    temporary = path.with_name("." + path.name + ".connector_tax")
    temporary.write_bytes(content)
    shutil.copymode(str(path), str(temporary))
    if os.geteuid() == 0:
        os.chown(str(temporary), path.stat().st_uid, path.stat().st_gid)
    os.replace(str(temporary), str(path))
