"""Some 35 hostile texts in every place of a config and of a connector's entry: refused, or taken as the text that they are."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.load import load_campaign
from connector_tax.base.documents.campaign import campaign_of
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import parse_json, to_json
from connector_tax.base.opening import is_bare
from connector_tax.base.plan import campaign_document, config_of
from connector_tax.read.report.status import status_text
from connector_tax.run.engine.command import engine_arguments, engine_environment
from connector_tax.run.engine.gpus import Cards

sys.path.insert(0, str(Path(__file__).parents[1]))
from builders import DATE
from hostile import CANARY, COMMANDS, PATHS, watched

SECRET = "the secret of somebody who never asked for it"
TEXTS = {**COMMANDS, **PATHS}

# --- The config: refused, or taken as the text that it is.


def demo() -> dict[str, Any]:
    value: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "config" / "demo.yaml").read_text())
    return value


def stored(config: CampaignConfig) -> Any:
    """What is read back of ``campaign.json``."""
    document = campaign_document(config, date=DATE, created_utc=f"{DATE}T00:00:00Z")
    return campaign_of(parse_json(to_json(document).encode()), "campaign.json")


CONFIG_PLACES: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "campaign": lambda c, v: c.update(campaign=v),
    "a connector": lambda c, v: c["connectors"].append(v),
    "connectors_file": lambda c, v: c.update(connectors_file=v),
    "model": lambda c, v: c["engine"].update(model=v),
    "served_model_name": lambda c, v: c["engine"].update(served_model_name=v),
    "model_file": lambda c, v: c["engine"].update(model_file=v),
    "an argument": lambda c, v: c["engine"]["args"].update(revision=v),
    "an argument's name": lambda c, v: c["engine"]["args"].update({v: 1}),
    "extra_args": lambda c, v: c["engine"].update(extra_args=[v]),
    "a variable": lambda c, v: c["engine"].update(env={"VLLM_X": v}),
    "a variable's name": lambda c, v: c["engine"].update(env={v: "1"}),
    "an image": lambda c, v: c["engine"].update(container=v),
    "a folder that a container sees": lambda c, v: c["engine"].update(
        container={"image": "i", "mounts": [v]}
    ),
    "a container runtime": lambda c, v: c["engine"].update(container={"image": "i", "runtime": v}),
    "a session file": lambda c, v: c.update(phase_c={"sessions": [v]}),
    "arrival": lambda c, v: c["cell"].update(arrival=v),
    "a key": lambda c, v: c.update({v: 1}),
}
# Of all texts so many are taken there; elsewhere what a file can hold is.
REFUSED = {
    **dict.fromkeys(
        (
            "campaign",
            "a connector",
            "connectors_file",
            "a container runtime",
            "a session file",
            "model_file",
            "arrival",
            "a key",
        ),
        0,
    ),
    **dict.fromkeys(("an argument's name", "a variable's name"), 1),
}
NAMES_FILES = ("connectors_file", "a session file", "model_file")


@pytest.mark.parametrize("place", CONFIG_PLACES)
def test_a_hostile_config_is_refused_or_kept_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """What is accepted comes back from ``campaign.json`` as it was, and names nothing outside ``results/``."""
    monkeypatch.chdir(tmp_path)
    accepted = 0
    with watched(tmp_path, tmp_path / "results") as watch:
        for name, text in TEXTS.items():
            if place in NAMES_FILES and name in (
                "device",
                "absolute",
                "up",
                "dot",
                "dots",
                "inside out",
                "empty",
            ):
                continue  # a path that the owner of the config gives is the owner's
            config = demo()
            CONFIG_PLACES[place](config, text)
            try:
                found = parse_campaign(config, where="hostile.yaml")
            except ConfigError as error:
                assert (
                    (len(str(error)) < 3000 and "hostile.yaml" in str(error))
                    or "connectors" in str(error)
                    or place in NAMES_FILES
                )
                continue
            accepted += 1
            folder = CampaignFolder(tmp_path / "results" / found.campaign)
            assert config_of(stored(found)) == found
            assert folder.root.parent == tmp_path / "results"
            assert is_bare(found.campaign) and all(map(is_bare, found.connector_ids))
            assert "not started" in status_text(found, tmp_path / "results", Path("hostile.yaml"))
    assert (watch.opened, watch.started) == ([], [])
    assert not (tmp_path / CANARY).exists() and not (PROJECT_ROOT / CANARY).exists()
    # A variable's name may have any length, and so may an argument's.
    assert accepted == REFUSED.get(place, accepted)


CONNECTOR_PLACES: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "its id": lambda c, v: c.update({v: c.pop("noop_connector")}),
    "label": lambda c, v: c["noop_connector"].update(label=v),
    "note": lambda c, v: c["noop_connector"].update(note=v),
    "a variable": lambda c, v: c["noop_connector"].update(env={"LMCACHE_X": v}),
    "a variable's name": lambda c, v: c["noop_connector"].update(env={v: "1"}),
    "extra_args": lambda c, v: c["noop_connector"].update(extra_args=[v]),
    "kv_connector": lambda c, v: c["noop_connector"]["kv_transfer_config"].update(kv_connector=v),
    "a key of its extra config": lambda c, v: c["noop_connector"]["kv_transfer_config"].update(kv_connector_extra_config={v: v}),
    "a module": lambda c, v: c["noop_connector"].update(modules=[{"module": v, "install": v}]),
    "a side port": lambda c, v: c["noop_connector"].update(side_ports=[{"env": v, "port": 1, "used_by": v}]),
    "verify": lambda c, v: c["noop_connector"].update(verify=v),
    "ttft_is_no_tax": lambda c, v: c["noop_connector"].update(ttft_is_no_tax=v),
}  # fmt: skip


@pytest.mark.parametrize("place", CONNECTOR_PLACES)
def test_a_hostile_connector_is_refused_or_kept_as_text(tmp_path: Path, place: str) -> None:
    entries = yaml.safe_load((PROJECT_ROOT / "config" / "connectors.yaml").read_text())
    with watched(tmp_path, tmp_path / "results", tmp_path / "config") as watch:
        for text in TEXTS.values():
            changed = deepcopy(entries)
            CONNECTOR_PLACES[place](changed, text)
            file = tmp_path / "config" / "connectors.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(yaml.safe_dump(changed))
            connectors = ["plain", text if place == "its id" else "noop_connector"]
            config = {**demo(), "connectors_file": str(file), "connectors": connectors, "phase_b_prime": {}}
            try:
                found = parse_campaign(config, where="hostile.yaml")
            except ConfigError:
                continue
            # A key that is called so makes its value a secret, which no document keeps.
            assert config_of(stored(found)) == found or "passwd" in text
            assert all(map(is_bare, found.connector_ids))
    assert (watch.opened, watch.started) == ([], [])


@pytest.mark.parametrize("name", [n for n in TEXTS if n not in ("null byte", "half a pair", "empty")])
def test_a_launch_hands_a_hostile_text_on_and_runs_none_of_it(tmp_path: Path, name: str) -> None:
    """As model, name, argument, variable, connector and path of the interpreter; by the launch script and by the record of it."""
    text = TEXTS[name]
    engine = tmp_path / "in ter$(touch canary)preter" / "python"
    engine.parent.mkdir()
    engine.write_text(
        '#!/bin/sh\nprintf "%s\\0" "$@" > "$RECORD"\nprintf "%s\\0" "$VLLM_X" "$LMCACHE_X" >> "$RECORD"\n'
    )
    engine.chmod(0o755)
    campaign = load_campaign(PROJECT_ROOT / "config" / "demo.yaml")
    config = replace(
        *(campaign.engine,), kind="vllm", python=str(engine), model=text, served_model_name=text,
        args={"revision": text}, extra_args=(text,), env={"VLLM_X": text},
    )  # fmt: skip
    connector = replace(
        campaign.connector("noop_connector"), env={"LMCACHE_X": text}, extra_args=(text,),
        kv_transfer_config={"kv_connector": text, "kv_connector_extra_config": {text: text}},
    )  # fmt: skip
    arguments = engine_arguments(config, connector)
    environment = engine_environment(config, connector, Cards((), 0)) | {
        "PORT": "1", "RECORD": str(tmp_path / "record"), "LAUNCH_SH_OUT": str(tmp_path / "launch.sh"),
    }  # fmt: skip
    expected = [
        *("-m", "vllm_serve", "serve", text, "--kv-transfer-config=" + json.dumps(connector.kv_transfer_config)),
        *("--served-model-name", text, "--host", "127.0.0.1", "--port", "1", "--revision", text, text, text, text, text),
    ]  # fmt: skip
    script = PROJECT_ROOT / "launch" / "launch_any.sh"
    subprocess.run(["bash", script, *arguments], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "record").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1] == expected
    (tmp_path / "record").unlink()
    by_hand = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "RECORD": str(tmp_path / "record"),
        "CONNECTOR_TAX_PROJECT": str(PROJECT_ROOT),
    }
    again = subprocess.run(["bash", "launch.sh"], cwd=tmp_path, env=by_hand, capture_output=True, text=True)
    if again.returncode == 0:
        assert (tmp_path / "record").read_bytes().decode().split("\0")[4:-1] == expected[4:]
    elif "passw" in text:
        assert "the run had a secret here" in again.stderr  # a key of that name: its value is taken for one
    else:
        assert "MODEL: " in again.stderr and "no such folder here" in again.stderr
    assert not list(tmp_path.rglob(CANARY))
