"""Every launch begins with an empty store of its own, whatever became of the launch before it."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from builders import campaign_config

from connector_tax.base.config import load_campaign
from connector_tax.base.errors import ConfigError
from connector_tax.base.records.connector import ConnectorSpec
from connector_tax.run.engine.process import LaunchRequest, running_engine
from connector_tax.run.engine.store import own_store, stores_folder

CONFIG = Path(__file__).parents[3] / "config"
STORING = ConnectorSpec(
    id="storing",
    label="",
    kv_transfer_config={
        "kv_connector": "X",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"parts": [{"path": "${STORE}/kv"}]},
    },
    env={"DISK": "file://${STORE}/"},
    extra_args=("--at", "${STORE}"),
)


@pytest.fixture(autouse=True)
def own_tmpdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "tmp").mkdir()


def folder_of(connector: ConnectorSpec) -> Path:
    return Path(connector.extra_args[1])


def test_the_placeholder_becomes_one_empty_folder_everywhere_and_the_folder_goes() -> None:
    with own_store(STORING) as connector:
        folder = folder_of(connector)
        assert list(folder.iterdir()) == []
        assert connector.kv_transfer_config is not None
        assert connector.kv_transfer_config["kv_connector_extra_config"]["parts"] == [
            {"path": f"{folder}/kv"}
        ]
        assert connector.env == {"DISK": f"file://{folder}/"}
        (folder / "kv").write_text("of this launch")
    assert not folder.exists()


def test_what_one_launch_stored_is_not_there_in_the_next_which_has_the_same_path() -> None:
    """The same path, since an engine may key its compiled code with its configuration."""
    with own_store(STORING) as first:
        (folder_of(first) / "kv").write_text("of this launch")
    with own_store(STORING) as second:
        assert folder_of(second) == folder_of(first)
        assert list(folder_of(second).iterdir()) == []


def test_two_launches_at_once_do_not_share() -> None:
    with own_store(STORING) as one, own_store(STORING) as other:
        assert folder_of(one) != folder_of(other)


def test_what_a_killed_measurement_left_is_removed_by_the_next_launch() -> None:
    """kill -9 while two launches hold two slots: neither folder outlives the next start."""
    code = (
        "import os, signal\n"
        "from connector_tax.run.engine.store import own_store\n"
        "from connector_tax.base.records.connector import ConnectorSpec\n"
        "c = ConnectorSpec(id='x', label='', kv_transfer_config=None, extra_args=('--at', '${STORE}'))\n"
        "with own_store(c) as a, own_store(c) as b:\n"
        "    for x in (a, b): open(x.extra_args[1] + '/kv', 'w').write('left')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    left = list(stores_folder().glob("*/kv"))
    assert len(left) == 2
    with own_store(STORING) as connector:
        assert list(folder_of(connector).iterdir()) == []
        assert not any(p.exists() for p in left)


def test_an_engine_is_launched_with_its_own_folder(tmp_path: Path) -> None:
    """Through the launch to the engine's command; the entry is the one that Example has."""
    campaign = load_campaign(CONFIG / "demo.yaml")
    example = campaign_config(
        connectors=["plain", "example_connector"], phase_b_prime={"configs": [], "shapes": []}
    ).connector("example_connector")
    with running_engine(LaunchRequest(campaign.engine, example, tmp_path)) as engine:
        engine.wait_ready()
        assert (stores_folder() / "0").is_dir()
        command = engine.processes()["api_server"].cmdline()
        kv = next(w for w in command if w.startswith("--kv-transfer-config="))
        assert json.loads(kv.partition("=")[2])["kv_connector_extra_config"] == {
            "shared_storage_path": str(stores_folder() / "0")
        }
    assert not (stores_folder() / "0").exists()
    # By hand it is a folder of that server's own.
    assert '"$CONNECTOR_TAX_STORE"' in (tmp_path / "launch.sh").read_text()


def test_a_store_that_launches_would_share_is_refused(tmp_path: Path) -> None:
    entry = (CONFIG / "connectors.yaml").read_text()
    shared = tmp_path / "connectors.yaml"
    shared.write_text(entry.replace('"${STORE}"', "/tmp/kv"))
    with pytest.raises(
        ConfigError, match=r"example_connector\..*shared_storage_path: '/tmp/kv'.*\$\{STORE\}"
    ):
        campaign_config(
            connectors=["plain", "example_connector"],
            connectors_file=str(shared),
            phase_b_prime={"configs": [], "shapes": []},
        )
