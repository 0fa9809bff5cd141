"""``connector-tax track``: files, exit codes, hostile names, the dashboards' records, and the second measurement."""

import base64
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from histories import Aggregate, lose, nights, noisy, set_tax

from connector_tax.base.errors import ConfigError, EngineError
from connector_tax.cli import command
from connector_tax.commands import track

HOSTILE = '</script><img src=x onerror=alert(1)>\u202e$x_{1}$&"'


CONFIG = Path(__file__).parents[3] / "config" / "demo.yaml"


def tracked(root: Path, to: Path, *more: str) -> int:
    return command("track").call([str(root), "--to", str(to), *more])


def test_a_regression_is_exit_code_1_and_three_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tracked(nights(tmp_path / "n", noisy(20, s12=0.03)), tmp_path / "to") == 1
    assert {p.name for p in (tmp_path / "to").iterdir()} == {
        "index.html",
        "history.json",
        "pytorch-benchmark.json",
    }
    assert capsys.readouterr().out.splitlines()[-1].startswith("Regression: ")
    assert tracked(tmp_path / "n", tmp_path / "to", "--fail-above", "0.05") == 0


def test_the_same_campaigns_give_the_same_bytes(tmp_path: Path) -> None:
    root = nights(tmp_path / "n", noisy(8))
    for name in ("one", "two"):
        tracked(root, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_names_of_folders_send_nothing_to_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = nights(tmp_path / "n", noisy(3))
    (root / "night-02").rename(root / "night\x1b[2J")
    (root / "night\x1b[2J" / "aggregate.json").write_text("[]")
    assert tracked(root, tmp_path / "to") == 0
    assert "\x1b" not in capsys.readouterr().err


def test_two_kinds_of_cards_are_counted_together(tmp_path: Path) -> None:
    def cards(_: int, value: Aggregate) -> None:
        value["provenance"]["gpu"] = ["GPU 0: NVIDIA H20 (UUID: a)", "GPU 1: NVIDIA L4 (UUID: b)"]

    tracked(nights(tmp_path / "n", noisy(2), cards), tmp_path / "to")
    runner = json.loads((tmp_path / "to" / "pytorch-benchmark.json").read_text())[0]["runners"][0]
    assert (runner["gpu_info"], runner["gpu_count"]) == ("NVIDIA H20, NVIDIA L4", 2)


def test_what_is_left_out_is_said_and_is_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = nights(tmp_path / "n", noisy(4))
    (root / "night-02" / "aggregate.json").write_text("[]")
    assert tracked(root, tmp_path / "to") == 0
    assert capsys.readouterr().err.count("left out: ") == 1
    assert "night-02" in (tmp_path / "to" / "index.html").read_text().split('id="left-out"')[1]


def test_no_campaign_is_exit_code_2_and_one_message(tmp_path: Path) -> None:
    entry = [sys.executable, "-c", "from connector_tax.cli import main; main()", "track"]
    ended = subprocess.run(
        [*entry, str(tmp_path), "--to", str(tmp_path / "to")], capture_output=True, text=True
    )
    assert ended.returncode == 2 and ended.stderr.startswith("error: ") and "Traceback" not in ended.stderr


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_hostile_names_are_text_in_page_and_pictures(tmp_path: Path) -> None:
    def hostile(k: int, value: Aggregate) -> None:
        value["campaign"] = HOSTILE
        value["configs"][HOSTILE] = value["configs"].pop("nixl_both") | {"label": HOSTILE}
        for row in (t for t in value["main_taxes"] if t["config"] == "nixl_both"):
            row["config"] = HOSTILE
        value["provenance"]["versions"]["vllm"] = f"{HOSTILE}{k > 12}"
        value["provenance"]["host"]["cpu"] = f"{HOSTILE}{k > 17}"

    assert tracked(nights(tmp_path / "n", noisy(20, s13=0.04), hostile), tmp_path / "to") == 1
    page = (tmp_path / "to" / "index.html").read_text()
    elements = Elements()
    elements.feed(page)
    assert not [tag for tag, _ in elements.found if tag in ("script", "iframe", "object", "link")]
    pictures = [a["src"] or "" for tag, a in elements.found if tag == "img"]
    assert pictures and all(src.startswith("data:image/svg+xml;base64,") for src in pictures)
    assert not [name for _, attributes in elements.found for name in attributes if name.startswith("on")]
    assert "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;" in page and "\u202e" not in page
    for src in pictures:
        svg = base64.b64decode(src.split(",")[1]).decode()
        assert (
            "<script" not in svg
            and "<img" not in svg
            and "onerror" not in re.sub(r"<!--.*?-->", "", svg, flags=re.S)
        )


def test_nothing_is_fetched_by_the_page(tmp_path: Path) -> None:
    tracked(nights(tmp_path / "n", noisy(3)), tmp_path / "to")
    page = (tmp_path / "to" / "index.html").read_text()
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)


def test_the_dashboards_records_have_the_tables_columns(tmp_path: Path) -> None:
    """Columns and types of oss_ci_benchmark_v3 in pytorch/test-infra; ``args`` is an object, as vLLM writes it."""

    def change(k: int, value: Aggregate) -> None:
        if k == 1:
            lose(value, "lost")

    tracked(nights(tmp_path / "n", noisy(3), change), tmp_path / "to")
    records: list[dict[str, Any]] = json.loads((tmp_path / "to" / "pytorch-benchmark.json").read_text())
    own = [
        r
        for r in records
        if r["model"]["backend"] == "nixl_both" and r["metric"]["name"] == "tpot_p90_tax_percent_ref_safe"
    ]
    assert [r["timestamp"] for r in own] == [1790820000, 1790992800], "the second campaign has no number"
    assert own[0]["metric"]["benchmark_values"] == pytest.approx([100 * noisy(3)[0]])
    for record in records:
        assert set(record["benchmark"]) == {"name", "mode", "dtype", "extra_info"}
        assert set(record["model"]) == {"name", "type", "backend", "origins", "extra_info"}
        assert set(record["metric"]) == {"name", "benchmark_values", "target_value", "extra_info"}
        assert record["benchmark"]["mode"] == "inference"
        maps = [
            record["model"]["extra_info"],
            record["metric"]["extra_info"],
            *(r["extra_info"] for r in record["runners"]),
        ]
        assert all(isinstance(v, str) for m in maps for v in m.values())
        assert {k: record["runners"][0][k] for k in ("cpu_count", "gpu_info", "gpu_count")} == {
            "cpu_count": 96,
            "gpu_info": "NVIDIA H20",
            "gpu_count": 1,
        }
        assert record["dependencies"]["vllm"]["repo"] == "vllm-project/vllm"


def test_a_suspicion_is_measured_once_more_before_it_is_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second campaign confirms it here, and there it does not."""
    root = nights(tmp_path / "n", noisy(14, s13=0.05))
    asked = []
    for name, tax, code in (("repeated", 0.1, 1), ("not", 0.05, 0)):
        again = nights(tmp_path / name, [*[0.0] * 14, tax]) / "night-14"

        def second(config: Path, again: Path = again) -> Path:
            asked.append(config)
            return again

        monkeypatch.setattr(track, "measured_again", second)
        assert tracked(root, tmp_path / "to", "--confirm", str(CONFIG)) == code
    assert asked == [CONFIG] * 2
    assert tracked(root, tmp_path / "to") == 0, "without it the suspicion is no alarm"


def test_without_a_suspicion_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(track, "measured_again", lambda config: pytest.fail("measured"))
    assert tracked(nights(tmp_path / "n", noisy(14)), tmp_path / "to", "--confirm", str(CONFIG)) == 0


def test_a_mistake_in_the_config_file_is_said_before_it_is_needed(tmp_path: Path) -> None:
    root = nights(tmp_path / "n", noisy(6))
    with pytest.raises(ConfigError, match="no such file"):
        tracked(root, tmp_path / "to", "--confirm", str(tmp_path / "none.yaml"))


def test_what_no_new_campaign_can_confirm_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A suspicion of a host that is measured no more."""

    def new_host(k: int, value: Aggregate) -> None:
        if k >= 14:
            value["provenance"]["host"]["cpu"] = "the new host"

    monkeypatch.setattr(track, "measured_again", lambda config: pytest.fail("measured"))
    taxes = [*noisy(14, s13=0.05), *noisy(6, seed=5)]
    assert tracked(nights(tmp_path / "n", taxes, new_host), tmp_path / "to", "--confirm", str(CONFIG)) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert "Suspected from the last campaign alone" in last and "--confirm" not in last
    assert last.endswith("another one would tell nothing of that.")


def test_a_second_measurement_that_fails_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A regression that is known is said, and files are written before."""

    def fails(config: Path) -> Path:
        assert (tmp_path / "to" / "index.html").is_file()
        raise EngineError("it did not come to its end")

    def two(k: int, value: Aggregate) -> None:
        set_tax(value, 0.05 + (0.06 if k >= 8 else 0) + (0.001, -0.001, 0.0005)[k % 3], metric="ttft_p90")

    monkeypatch.setattr(track, "measured_again", fails)
    known = nights(tmp_path / "known", noisy(20, s19=0.05), two)
    assert tracked(known, tmp_path / "to", "--confirm", str(CONFIG)) == 1
    with pytest.raises(EngineError):
        tracked(nights(tmp_path / "none", noisy(20, s19=0.05)), tmp_path / "to", "--confirm", str(CONFIG))


def test_the_second_measurement_is_a_campaign_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run command's Snakemake, with a name that no results have yet; what does not end is one message.

    With as many engines side by side as the nights have, or it would be of another series.
    """
    monkeypatch.setattr("connector_tax.base.config.checked.PROJECT_ROOT", tmp_path)
    (tmp_path / "results" / "demo-again-1").mkdir(parents=True)
    started: list[list[str]] = []

    def run(arguments: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(arguments)
        return subprocess.CompletedProcess(arguments, 1)

    monkeypatch.setattr("connector_tax.commands.run.PROJECT_ROOT", tmp_path)
    (tmp_path / "Snakefile").touch()
    monkeypatch.setattr(track.subprocess, "run", run)
    with pytest.raises(EngineError, match="demo-again-2: the second measurement did not come to its end"):
        track.measured_again(CONFIG)
    assert started[0][1:] == [
        "-m",
        "snakemake",
        "--cores",
        "1",
        "--config",
        "campaign=demo-again-2",
        "--configfile",
        str(CONFIG),
    ]
    two = tmp_path / "two.yaml"
    two.write_text(CONFIG.read_text().replace("  kind: emulator", "  kind: emulator\n  gpus: [0, 1]"))
    with pytest.raises(EngineError, match=r"run --configfile .*two.yaml --cores 2 -- "):
        track.measured_again(two)
    assert started[1][3:5] == ["--cores", "2"]
