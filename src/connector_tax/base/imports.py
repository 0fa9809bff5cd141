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
_OUR_MODULE = re.compile(rf"{NAME}(\.\w+)*")
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
    to_visit = [file for entry in entries for file in _entry(entry)]
    files: set[Path] = set()
    while to_visit:
        path = to_visit.pop()
        if path not in files:
            files.add(path)
            if path.suffix == ".py":
                to_visit += _needed(path)
    return sorted(files)


def sha256_of_code(files: Iterable[Path]) -> str:
    """Hash the files' names, relative to the project's root, and contents."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(os.path.relpath(path, PROJECT).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _entry(entry: str | Path) -> Iterator[Path]:
    if _OUR_MODULE.fullmatch(str(entry)):
        files = list(_module(str(entry)))
        if not files:
            raise FileNotFoundError(f"{entry}: there is no such module of ours")
        yield from files
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
    files: set[Path] = set()
    for name in (*_imported(source), *_MODULE_NAMED.findall(source)):
        files.update(_module(name))
    files.update(p for p in _data_beside(path.parent) if f'"{p.name}"' in source)
    for parts in _PROJECT_PATH.findall(source):
        files.update(_files_at(PROJECT.joinpath(*re.findall(r'"([^"]+)"', parts))))
    return tuple(files)


def _imported(source: str) -> Iterator[str]:
    """Yield our modules, and names in them, that a file imports; a parser would take ten times as long."""
    for module, names, plain_import in _IMPORT.findall(_COMMENT.sub("", source)):
        yield module or plain_import
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))


@cache
def _module(name: str) -> tuple[Path, ...]:
    """Return the files that importing ``name`` runs, with its packages'; none if it is not our module."""
    parts = name.split(".")
    if parts[0] != NAME:
        return ()
    stem = PACKAGE.parent.joinpath(*parts)
    candidates = [stem.with_suffix(".py"), stem / "__init__.py", stem / "__main__.py"]
    packages = [PACKAGE.parent.joinpath(*parts[:n], "__init__.py") for n in range(1, len(parts))]
    existing = [path for path in candidates if path.is_file()]
    return tuple([*(p for p in packages if p.is_file()), *existing] if existing else ())


@cache
def _data_beside(folder: Path) -> tuple[Path, ...]:
    return tuple(p for p in folder.iterdir() if p.is_file() and p.suffix not in (".py", ".pyc"))


def _files_at(path: Path) -> list[Path]:
    if path.is_dir():
        return [p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    return [path] if path.is_file() else []
