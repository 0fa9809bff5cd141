"""What holds for every test."""

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

# A shell's background ignores one and nohup the other, and so would every process that a test starts and ends.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
BUNDLE = Path(__file__).parents[1] / "published" / "virtual-h200-eight.tar.xz"


MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """A folder by its name, filled once in a run by whichever process asks first; the others wait for it. Tests change nothing there."""
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
    """The published campaign's folder as its bundle holds it, unpacked once in a run, with whatever step tables tests made there."""
    from connector_tax.read.bundle import unpack

    return made_once("published", lambda folder: unpack(BUNDLE, folder)) / "results" / "virtual-h200-eight"


@pytest.fixture(autouse=True, scope="session")
def _what_is_temporary_goes_with_the_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What killed processes leave as well: pytest removes the folder of its third run before."""
    tempfile.tempdir = os.environ["TMPDIR"] = str(tmp_path_factory.mktemp("t", numbered=False))


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Nothing that a test writes has to outlive a power cut, and waiting for the disk is half of what a made campaign takes.

    Tests of what is made durable and when put an fsync of their own in its place. Processes that a test starts have the real one.
    """
    real = os.fsync
    os.fsync = lambda _: None
    yield
    os.fsync = real


@pytest.fixture(autouse=True, scope="session")
def _connectors_are_parsed_once() -> Iterator[None]:
    """Nearly every test has a campaign, and PyYAML needs a tenth of a second for the file that all of them name; what is made of it is a copy."""
    shipped = PROJECT_ROOT / "config" / "connectors.yaml"
    known = read_yaml(shipped)
    load.read_yaml = lambda path: known if path == shipped else read_yaml(path)  # type: ignore[assignment]
    yield
    load.read_yaml = read_yaml


@pytest.fixture(autouse=True)
def _no_secret_is_known_of_another_test() -> Iterator[None]:
    """Whoever reads a config has what it refers to known to its process from then on."""
    yield
    os.environ.pop(REFERRED_VARIABLE, None)
