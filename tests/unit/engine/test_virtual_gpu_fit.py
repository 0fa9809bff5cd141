"""A vLLM that the virtual GPU does not fit is refused in one message, before anything is launched."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from connector_tax.base.artifacts.layout import CampaignFolder
from connector_tax.base.config import CampaignConfig
from connector_tax.base.errors import EngineError
from connector_tax.base.files import write_json
from connector_tax.base.plan import campaign_document
from connector_tax.run.engine.virtual_gpu import note_on, refuse_misfit
from connector_tax.run.measure.preflight import run_preflight

sys.path.insert(0, str(Path(__file__).parents[1] / "virtual_gpu"))
from release_sources import whole_release
from virtual_gpus import clocked_campaign, model_in

OLDER = ("sample_tokens", "sample")


def campaign_with(tmp_path: Path, version: str, **changes: tuple[str, str]) -> CampaignConfig:
    """One whose interpreter finds a vLLM made of small sources."""
    site = tmp_path / "site"
    vllm = whole_release(site, **changes)
    (vllm / "__init__.py").write_text("raise ImportError('nobody has to import vLLM for this')\n")
    (vllm / "_version.py").write_text(f"__version__ = version = '{version}'\n")
    return clocked_campaign(model_in(tmp_path / "model"), python=str(python_with(tmp_path, site)))


def python_with(tmp_path: Path, site: Path) -> Path:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return python


def test_preflight_says_which_release_and_why_and_launches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONNECTOR_TAX_CACHE", str(tmp_path / "cache"))
    config = campaign_with(tmp_path, "0.10.2", uniproc_executor=OLDER)
    folder = CampaignFolder(tmp_path / "campaign")
    write_json(folder.campaign_file, campaign_document(config, date="2026-01-01", created_utc=""))
    with pytest.raises(EngineError) as refused:
        run_preflight(folder.campaign_file)
    words = str(refused.value)
    assert words.startswith("engine.kind: virtual_gpu does not fit vLLM 0.10.2 in ")
    assert "v1/executor/uniproc_executor.py has no UniProcExecutor.sample_tokens. " in words
    assert "run on 0.27 to 0.32" in words and "\n" not in words
    assert not folder.preflight.exists()


def test_a_release_that_has_all_of_it_is_not_refused(tmp_path: Path) -> None:
    refuse_misfit(campaign_with(tmp_path, "0.32.0").engine, "0.32.0")


@pytest.mark.parametrize("version", ["0.24.0", "1.0"])
def test_a_release_whose_runners_nobody_compared_is_refused(tmp_path: Path, version: str) -> None:
    """It may call hooks elsewhere, and nothing in its numbers would say so."""
    with pytest.raises(
        EngineError, match=rf"does not fit vLLM {version} in .* was compared for 0.25 to 0.33 only"
    ):
        refuse_misfit(campaign_with(tmp_path, version).engine, version)


def test_another_kind_of_engine_is_not_asked(tmp_path: Path) -> None:
    engine = campaign_with(tmp_path, "0.10.2", uniproc_executor=OLDER).engine
    refuse_misfit(replace(engine, kind="vllm", virtual_gpu=None), "0.10.2")


def test_an_interpreter_without_vllm_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    python = python_with(tmp_path, tmp_path / "empty")
    engine = clocked_campaign(model_in(tmp_path / "model"), python=str(python)).engine
    with pytest.raises(EngineError, match=r"engine\.python: .*python has no vllm\. Give the interpreter"):
        refuse_misfit(engine, None)


@pytest.mark.parametrize(
    ("version", "noted"),
    [("0.26.0", True), ("0.32.1.dev3+cpu", False), ("1.0", True)],
)
def test_a_release_that_it_was_not_run_on_is_noted(version: str, noted: bool) -> None:
    engine = clocked_campaign("m").engine
    note = note_on(engine, version)
    assert (note is not None) == noted
    assert note is None or f"and this is {version}" in note
    assert note_on(replace(engine, virtual_gpu=None), version) is None
