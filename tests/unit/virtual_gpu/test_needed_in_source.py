"""A release that lacks what the virtual GPU is built on is told by its source, and the message names all of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from release_sources import whole_release
from virtual_gpu.needed import lacks

PLUGINS = Path(__file__).parents[3] / "launch" / "plugins"


def test_a_release_with_all_of_it_lacks_nothing(tmp_path: Path) -> None:
    assert lacks(whole_release(tmp_path)) is None


def test_an_executor_without_the_second_call_of_a_step_is_named(tmp_path: Path) -> None:
    vllm = whole_release(
        tmp_path,
        uniproc_executor=("sample_tokens", "sample"),
        gpu_worker=("sample_tokens(self, grammar_output)", "sample_tokens(self, scheduler_output)"),
    )
    assert lacks(vllm) == (
        "v1/executor/uniproc_executor.py has no UniProcExecutor.sample_tokens; "
        "v1/worker/gpu_worker.py: Worker.sample_tokens takes (scheduler_output), not (grammar_output)"
    )


def test_connector_code_that_is_called_otherwise_is_named(tmp_path: Path) -> None:
    """As in 0.16 and 0.20, where the same place takes the scheduler's output."""
    older = ("post_forward(self, finished_req_ids", "post_forward(self, scheduler_output")
    assert lacks(whole_release(tmp_path, kv_connector=older)) == (
        "v1/worker/gpu/kv_connector.py: ActiveKVConnector.post_forward takes (scheduler_output, wait_for_save), not (finished_req_ids)"
    )


def test_further_parameters_are_none_of_its_business(tmp_path: Path) -> None:
    more = ("sample_tokens(self, grammar_output", "sample_tokens(self, grammar_output, more=None")
    assert lacks(whole_release(tmp_path, uniproc_executor=more)) is None


def test_a_file_that_is_not_there_and_one_that_is_not_python_are_named(tmp_path: Path) -> None:
    vllm = whole_release(tmp_path, interface=("class Platform:", "class Platform for:"))
    (vllm / "v1/outputs.py").unlink()
    found = str(lacks(vllm))
    assert "v1/outputs.py is not there; " in found
    assert "platforms/interface.py is not Python of this interpreter" in found


def test_a_release_without_model_runner_v2_is_not_asked_for_its_parts(tmp_path: Path) -> None:
    vllm = whole_release(tmp_path)
    (vllm / "v1/worker/gpu/model_runner.py").unlink()
    (vllm / "v1/worker/gpu/kv_connector.py").unlink()
    assert lacks(vllm) is None


@pytest.mark.parametrize("gone", ["", "v1/worker/gpu_worker.py"])
def test_a_program_asks_it(tmp_path: Path, gone: str) -> None:
    vllm = whole_release(tmp_path)
    if gone:
        (vllm / gone).unlink()
    done = subprocess.run(
        [sys.executable, "-m", "virtual_gpu.needed", str(vllm)], cwd=PLUGINS, capture_output=True, text=True
    )
    assert json.loads(done.stdout) == {"reason": f"{gone} is not there" if gone else None}
