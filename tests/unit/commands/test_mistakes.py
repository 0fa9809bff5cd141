"""What a person mistypes, forgets or has not got is one message of at most three lines that names the remedy; nothing is started."""

import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from builders import Campaign, campaign_config

from connector_tax.base.config.checked import PROJECT_ROOT
from connector_tax.base.plan import named
from connector_tax.cli import main

CONFIG = "config/config.yaml"
# Nobody listens there.
NOBODY = "http://127.0.0.1:9"
RATES = ("--rates", "1", "--out", "out")
MISTAKES = [
    # typos
    ("rnu demo", "connector-tax run"),
    ("demo.yaml", "connector-tax run demo.yaml"),
    ("run demoo", "Did you mean demo?"),
    ("run demo --core 2 --smoek", "Did you mean --smoke?"),
    ("plan demo --time-onyl", "Did you mean --time-only?"),
    ("run demo --minutes 5m", "--help"),
    ("run demo --cores 0", "give 1 or more"),
    ("run demo -- --bad-option", "arguments: --bad-option. Its options: connector-tax run -- --help"),
    ("plan demo --gpus 3", "from 1 to that"),
    ("check --connector nxl --engine-python /bin/true", "Known"),
    ("sweep config/sweep.yaml pln", "'plan'"),
    # arguments in the wrong order, of another command, or missing
    ("demo.yaml run", "connector-tax run demo.yaml"),
    ("results/demo report --markdown", "connector-tax report results/demo"),
    ("run phase_a demo.yaml", "a results folder, or demo"),
    ("run demo --save x", "--minutes"),
    ("run demo --connectors nixl_both", "--smoke"),
    ("compare demo", "two campaigns"),
    ("compare demo config", "connector-tax run demo"),
    ("load --base-url localhost:9 --rates 1 --out out", "http://host:port"),
    ("load --out out", "--demo"),
    # a file or folder of another kind
    ("report config/connectors.yaml", "config/demo.yaml"),
    ("plan config/fleet.yaml", "config/demo.yaml"),
    ("sweep config/demo.yaml plan", "sweep"),
    ("sweep {campaign} plan", "such as config/sweep.yaml"),
    ("fleet {campaign} --fleet config/demo.yaml", "config/demo.yaml"),
    ("status {here}/folder.yaml", "Give a config file or a results folder"),
    ("status {here}", "Campaigns in it: made"),
    ("plan {here}/tab.yaml", "Indent by blanks"),
    ("run {here}/empty.yaml", "a mapping is wanted at the top, found nothing"),
    ("run {here}/twice.yaml", "line 2, column 1: this key stands in line 1"),
    ("report --configfile demo", "The campaign is the first argument"),
    ("run {here}/cut.tar.xz", "such as config/demo.yaml"),
    ("verify {here}/nope.tar.xz", "Give a bundle"),
    ("bundle {campaign}", "--partial"),
    ("bundle {campaign} --partial --to {campaign}/x.tar.xz", "Put it elsewhere"),
    ("bundle {campaign} --partial --to {here}", "Give the name of a file"),
    ("run demo --take {here}/nope.tar.gz", "nope.tar.gz"),
    # a folder in which nothing can be made, for root neither
    ("plan demo --time-only --to /proc/x", "/proc/x"),
    ("plan demo --time-only --to {here}/tab.yaml", "Move it away"),
    # no engine, no GPU, another server
    (f"run {CONFIG}", "export ENGINE_PYTHON="),
    ("run --smoke", "ENGINE_PYTHON"),
    ("run --smoke --engine-python {python}", "virtual-gpu"),
    ("check --connector nixl_both", "--engine-python"),
    (" ".join(("load --base-url", NOBODY, *RATES)), "Start it first"),
    (" ".join(("load --base-url {server}", *RATES)), "Start it first"),
]


class Other(BaseHTTPRequestHandler):
    """A server of something else."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *said: object) -> None:
        pass


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Files and a server that are not what is asked for, and a campaign that is not finished."""
    here = tmp_path_factory.mktemp("here with a blank")
    (here / "folder.yaml").mkdir()
    (here / "tab.yaml").write_text("campaign: a\nengine:\n\tkind: vllm\n")
    (here / "empty.yaml").touch()
    (here / "twice.yaml").write_text("seed: 1\nseed: 2\n")
    (here / "cut.tar.xz").write_bytes(b"\xfd7zXZ\x00\x00\x04")
    campaign = Campaign(here / "made", campaign_config(), max_steps=20)
    campaign.measure("plain")
    with HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield {
            "here": str(here),
            "campaign": str(campaign.root),
            "python": sys.executable,
            "server": f"http://127.0.0.1:{server.server_port}",
        }
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(("typed", "remedy"), MISTAKES)
def test_a_mistake_is_one_message_with_a_remedy(
    typed: str,
    remedy: str,
    given: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(PROJECT_ROOT)
    monkeypatch.setattr("os.execv", lambda path, words: pytest.fail("Snakemake was started"))
    monkeypatch.setattr("os.environ", {**os.environ, "CONNECTOR_TAX_CACHE": str(tmp_path)})
    monkeypatch.setattr(named, "results_folder", lambda: tmp_path / "results")
    # As a script leaves it behind whose `$VLLM_PYTHON` was not set.
    os.environ["ENGINE_PYTHON"] = ""
    with pytest.raises(SystemExit) as ended:
        main([word.format(**given) for word in typed.split()])
    out, err = capsys.readouterr()
    assert (ended.value.code, out, "Traceback" in err) == (2, "", False), err
    assert 1 <= len(err.splitlines()) <= 3 and remedy.format(**given) in err, err


def test_a_bundle_that_is_cut_is_to_be_fetched_again(
    given: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["verify", f"{given['here']}/cut.tar.xz"])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (1, "") and len(out.splitlines()) <= 3
    assert "Fetch it once more" in out
