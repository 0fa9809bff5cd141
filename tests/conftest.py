"""Fixtures of every test."""

import fcntl
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connector_tax.base.config import load
from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.secrets import REFERRED_VARIABLE

# A background shell ignores SIGINT and nohup SIGHUP; processes that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
BUNDLE = Path(__file__).parents[1] / "published" / "virtual-h200-eight.tar.xz"


MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Return a function that makes a shared folder once in a run; tests must not change the folder."""
    own = tmp_path_factory.getbasetemp()
    everybodys = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def find(name: str, make: Callable[[Path], object]) -> Path:
        folder = everybodys / "shared" / name
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder.with_suffix(".made"), "a+") as made:
            fcntl.flock(made, fcntl.LOCK_EX)
            if not made.tell():
                make(folder)
                made.write("made")
        return folder

    return find


@pytest.fixture(scope="session")
def published_campaign(made_once: MadeOnce) -> Path:
    """Return the published campaign's unpacked folder, with any step tables that tests made there."""
    from connector_tax.read.bundle import unpack

    return made_once("published", lambda folder: unpack(BUNDLE, folder)) / "results" / "virtual-h200-eight"


@pytest.fixture(autouse=True, scope="session")
def _what_is_temporary_goes_with_the_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Put all temporary files, also those of killed processes, where pytest cleans up."""
    tempfile.tempdir = os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("t", numbered=False))


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Make fsync do nothing in this process: it takes half the time of a made campaign.

    Tests of durability patch fsync themselves. Processes that a test starts use the real one.
    """
    real = os.fsync
    os.fsync = lambda _: None
    yield
    os.fsync = real


@pytest.fixture(autouse=True, scope="session")
def _connectors_are_parsed_once() -> Iterator[None]:
    """Parse connectors.yaml once: nearly every campaign reads it, and PyYAML takes 0.1 s."""
    shipped = PROJECT_ROOT / "config" / "connectors.yaml"
    known = read_yaml(shipped)
    load.read_yaml = lambda path: known if path == shipped else read_yaml(path)  # type: ignore[assignment]
    yield
    load.read_yaml = read_yaml


@pytest.fixture(autouse=True)
def _no_secret_is_known_of_another_test() -> Iterator[None]:
    """Forget the secrets that a config of this test referred to."""
    yield
    os.environ.pop(REFERRED_VARIABLE, None)
