"""Entry files -> every file of this project that they can run or read, without running any of it.

Followed are imports anywhere in a file, and quoted dotted names of our modules, since processes are started
by ``-m``. Data files count if a module names them: the quoted name of a file beside it, or a literal path
from ``PROJECT_ROOT``, with everything below a folder.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
NAME = PACKAGE.name
# In a checkout; a wheel has the files that setup.py puts into the package.
IN_CHECKOUT = (PACKAGE.parents[1] / "Snakefile").is_file()
PROJECT = PACKAGE.parents[1] if IN_CHECKOUT else PACKAGE / "project"
_OURS = re.compile(rf"{NAME}(\.\w+)*")
_IMPORT = re.compile(
    rf"^[ \t]*(?:from ({NAME}\b[\w.]*) import (\([^)]*\)|.*)|import ({NAME}\b[\w.]*))", re.MULTILINE
)
_COMMENT = re.compile("#.*")
_MODULE_NAMED = re.compile(rf'"({NAME}(?:\.\w+)+)"')
_PROJECT_PATH = re.compile(r'\bPROJECT_ROOT((?:\s*/\s*"[^"]+")+)(?!\s*/)')


def closure(*entries: str | Path) -> list[Path]:
    """Return the files behind ``entries``, including those; absolute, sorted.

    Args:
        entries: dotted names of our modules, or paths of Python files in the project.

    Raises:
        FileNotFoundError: an entry is neither.
    """
    waiting = [file for entry in entries for file in _entry(entry)]
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            if path.suffix == ".py":
                waiting += _needed(path)
    return sorted(found)


def sha256_of_code(files: Iterable[Path]) -> str:
    """Hash the files' names, relative to the project's root, and contents."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(os.path.relpath(path, PROJECT).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _entry(entry: str | Path) -> Iterator[Path]:
    if _OURS.fullmatch(str(entry)):
        found = list(_module(str(entry)))
        if not found:
            raise FileNotFoundError(f"{entry}: there is no such module of ours")
        yield from found
    else:
        path = PROJECT / entry
        if not path.is_file():
            raise FileNotFoundError(
                f"{path}: no such file; an entry is a dotted module or a file of the project"
            )
        yield path


@cache
def _needed(path: Path) -> tuple[Path, ...]:
    """Return what one Python file imports, starts or reads, one step deep."""
    source = path.read_text(encoding="utf-8")
    found: set[Path] = set()
    for name in (*_imported(source), *_MODULE_NAMED.findall(source)):
        found.update(_module(name))
    found.update(p for p in _data_beside(path.parent) if f'"{p.name}"' in source)
    for parts in _PROJECT_PATH.findall(source):
        found.update(_files_at(PROJECT.joinpath(*re.findall(r'"([^"]+)"', parts))))
    return tuple(found)


def _imported(source: str) -> Iterator[str]:
    """Yield our modules, and names in them, that a file imports; a parser would take ten times as long."""
    for module, names, whole in _IMPORT.findall(_COMMENT.sub("", source)):
        yield module or whole
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))


@cache
def _module(name: str) -> tuple[Path, ...]:
    """Return the files that importing ``name`` runs, with its packages'; none if it is not our module."""
    parts = name.split(".")
    if parts[0] != NAME:
        return ()
    here = PACKAGE.parent.joinpath(*parts)
    own = [here.with_suffix(".py"), here / "__init__.py", here / "__main__.py"]
    packages = [PACKAGE.parent.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts))]
    found = [path for path in own if path.is_file()]
    return tuple([*(p for p in packages if p.is_file()), *found] if found else ())


@cache
def _data_beside(folder: Path) -> tuple[Path, ...]:
    return tuple(p for p in folder.iterdir() if p.is_file() and p.suffix not in (".py", ".pyc"))


def _files_at(there: Path) -> list[Path]:
    if there.is_dir():
        return [p for p in there.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return [there] if there.is_file() else []
