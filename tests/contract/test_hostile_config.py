"""What a config says to an engine reaches it as it is, through the launch script and through the record of it, and no shell runs any of it."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from launches import launch_of
from msgspec.structs import replace

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.config.load import load_campaign

# Each would make a file of this name in the current folder if a shell ran it.
CANARY = "canary"
TEXTS = {
    "command substitution": f"$(touch {CANARY})",
    "next line": f"\ntouch {CANARY}\n",
    "out of quotes": f"'; touch {CANARY}; '",
    "parameter": f"${{x:=$(touch {CANARY})}}",
    "glob": "*",
    "options": f"--output={CANARY}",
    "escape": "\\",
    "terminal": "\x1b]0;title\x07\x1b[2J",
    "too long": "d" * 300,
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_launch_hands_a_hostile_text_on_and_runs_none_of_it(tmp_path: Path, name: str) -> None:
    """As model, name, argument, variable, connector and path of the interpreter; by the launch and by its launch.sh."""
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
    launch = launch_of(config, connector)
    expected = [
        *("-m", "vllm_serve", "serve", text, "--kv-transfer-config=" + json.dumps(connector.kv_transfer_config)),
        *("--served-model-name", text, "--host", "127.0.0.1", "--port", "1", "--revision", text, text, text, text, text),
    ]  # fmt: skip
    record = {"RECORD": str(tmp_path / "record")}
    subprocess.run(launch.command(), cwd=tmp_path, env={**launch.variables(), **record}, check=True)
    assert (tmp_path / "record").read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1] == expected
    (tmp_path / "record").unlink()
    (tmp_path / "launch.sh").write_text(launch.script(connector))
    by_hand = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CONNECTOR_TAX_PROJECT": str(PROJECT_ROOT),
        **record,
    }
    again = subprocess.run(["bash", "launch.sh"], cwd=tmp_path, env=by_hand, capture_output=True, text=True)
    if again.returncode == 0:
        assert (tmp_path / "record").read_bytes().decode().split("\0")[4:-1] == expected[4:]
    else:
        assert "MODEL: " in again.stderr and "no such folder here" in again.stderr
    assert not list(tmp_path.rglob(CANARY))
