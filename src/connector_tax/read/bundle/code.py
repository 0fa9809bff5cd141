"""The code that a bundle holds: the package's own files, and one number for all of them."""

import hashlib
from importlib import metadata
from pathlib import Path

import connector_tax
from connector_tax.base.config.checked import PROJECT_ROOT, SCHEMAS
from connector_tax.base.files import is_bare, sha256_of
from connector_tax.read.figures.labels import WORDS

# ``PYTHONPATH=code`` finds it.
CODE = "code/connector_tax/"
# Where the package of a wheel has what it needs of a checkout.
_OF_CHECKOUT = f"{CODE}project/"

# Of Python and of what the package has beside it; what an editor or a merge left there is none of it.
SUFFIXES = {".py", ".j2", ".css", ".js"}


def code_files() -> dict[str, Path]:
    """Name in the bundle -> file: what is installed, and the schemas and templates that a checkout has beside it."""
    package = Path(connector_tax.__file__).parent
    found = {}
    for path in sorted(package.rglob("*")):
        parts = path.relative_to(package).parts
        unwanted = "__pycache__" in parts or parts[0] == "project" or not all(map(is_bare, parts))
        if path.is_file() and not path.is_symlink() and not unwanted and path.suffix in SUFFIXES:
            found[CODE + "/".join(parts)] = path
    for folder in (SCHEMAS, WORDS):
        for path in sorted(folder.glob("*.*")):
            found[f"{_OF_CHECKOUT}workflow/{folder.name}/{path.name}"] = path
    return found


def code_sha256(sha256: dict[str, str]) -> str:
    """Of the package's files among ``sha256`` (name in the bundle -> checksum), in order of name."""
    own = sorted(name for name in sha256 if name.startswith(CODE) and not name.startswith(_OF_CHECKOUT))
    return hashlib.sha256("".join(f"{sha256[name]}  {name}\n" for name in own).encode()).hexdigest()


def installed_sha256() -> str:
    """The same of the code that runs."""
    return code_sha256({name: sha256_of(path) for name, path in code_files().items()})


def requirements() -> tuple[str, str]:
    """(name, text): the checkout's lock, else the versions of what is installed."""
    lock = PROJECT_ROOT / "requirements.lock"
    if lock.is_file():
        return lock.name, lock.read_text(encoding="utf-8")
    found = {f"{d.name.lower()}=={d.version}" for d in metadata.distributions()}
    return "installed-packages.txt", "".join(f"{line}\n" for line in sorted(found))
