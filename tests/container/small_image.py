"""An image that holds this Python and what the embedded engine imports, made of this host's own files: nothing is downloaded."""

import io
import os
import subprocess
import sys
import sysconfig
import tarfile
from functools import cache
from pathlib import Path, PurePath
from typing import IO

NAME = f"localhost/connector-tax-test-{os.getpid()}:1"
# Of the standard library; an engine needs none of it.
UNNEEDED = {
    "test",
    "tests",
    "idlelib",
    "lib2to3",
    "turtledemo",
    "ensurepip",
    "site-packages",
    "__pycache__",
    "tkinter",
}
IMPORTED = """
import sys, connector_tax.run.emulator.__main__
names = {name.partition(".")[0] for name in sys.modules}
files = {getattr(sys.modules[name], "__file__", None) for name in names - {"connector_tax", "__main__"} if name in sys.modules}
print("\\n".join(sorted(f for f in files if f and "site-packages" in f)))
"""


def import_image(runtime: str, name: str) -> None:
    """Give ``runtime`` the image, by that name."""
    subprocess.run([runtime, "import", "-", name], input=_files(), capture_output=True, check=True)


class _Tar(tarfile.TarFile):
    """With an entry for each folder: docker makes the others so that only root with all capabilities finds anything in them."""

    def addfile(self, tarinfo: tarfile.TarInfo, fileobj: IO[bytes] | None = None) -> None:
        there = {entry.name for entry in self.members}
        for folder in reversed(PurePath(tarinfo.name).parents[:-1]):
            if str(folder) not in there:
                self.folder(str(folder))
        super().addfile(tarinfo, fileobj)

    def folder(self, name: str, mode: int = 0o755) -> None:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode = tarfile.DIRTYPE, mode
        super().addfile(entry)


@cache
def _files() -> bytes:
    made = io.BytesIO()
    with _Tar.open(fileobj=made, mode="w") as tar:
        for folder in ("proc", "sys", "dev", "etc", "run"):
            tar.folder(folder)
        tar.folder("tmp", 0o1777)
        _add_python(tar)
    return made.getvalue()


def _add_python(tar: tarfile.TarFile) -> None:
    python, library = (
        Path(sys.executable).resolve(),
        Path(sysconfig.get_path("stdlib", vars=_base())).resolve(),
    )
    _add(tar, python, python)
    link = tarfile.TarInfo("usr/bin/python3")
    link.type, link.linkname = tarfile.SYMTYPE, str(python)
    tar.addfile(link)
    tar.add(
        library,
        arcname=str(library),
        filter=lambda entry: None if UNNEEDED & set(Path(entry.name).parts) else entry,
    )
    shared = [python, *library.rglob("*.so")]
    found = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    ).stdout.split("\n")
    packages = {_package(Path(file)) for file in found if file}
    # Where auditwheel puts shared libraries of a package.
    packages |= {libs for p in packages if (libs := p.with_name(f"{p.stem}.libs")).is_dir()}
    for package in sorted(packages):
        tar.add(
            package,
            arcname=str(library / "site-packages" / package.name),
            filter=lambda e: None if "__pycache__" in e.name else e,
        )
        shared += package.rglob("*.so*") if package.is_dir() else [package] if package.suffix == ".so" else []
    for needed in sorted({path for file in shared for path in _needed(file)}):
        _add(tar, needed.resolve(), needed)


def _base() -> dict[str, str]:
    return {"installed_base": sys.base_prefix, "base": sys.base_prefix}


def _package(file: Path) -> Path:
    """The folder below site-packages, or the module."""
    at = file.parts.index("site-packages")
    return Path(*file.parts[: at + 2])


def _needed(file: Path) -> list[Path]:
    """Shared libraries that the loader finds for ``file``, and the loader itself."""
    said = subprocess.run(["ldd", str(file)], capture_output=True, text=True).stdout.split()
    return [
        Path(word)
        for word in said
        if word.startswith("/") and "site-packages" not in word and Path(word).exists()
    ]


def _add(tar: tarfile.TarFile, file: Path, place: Path) -> None:
    tar.add(file, arcname=str(place))
