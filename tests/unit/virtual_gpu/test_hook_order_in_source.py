"""The order of a connector's hooks is read from a release's sources, and a release that moves one is named."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from release_sources import V1_HOOKS, V2_RUNNER, release
from virtual_gpu import hook_order
from virtual_gpu.hook_order import EMPTY_LAYOUTS, STEP_LAYOUTS, fits, read_layers, read_order
from virtual_gpu.source_things import CannotRead, Place, Thing, within_reach
from virtual_gpu.source_walk import Walk, walk

PLUGINS = Path(__file__).parents[3] / "launch" / "plugins"
POST_FORWARD = "        kv_connector_output = self.kv_connector.post_forward(finished_req_ids)\n"


def test_a_step_without_tokens_calls_the_hooks_and_nothing_else(tmp_path: Path) -> None:
    assert dict(read_order(release(tmp_path), "V2").places)["nothing to compute"] == ("no_forward",)


def test_model_runner_v1_is_done_with_the_connector_before_it_samples(tmp_path: Path) -> None:
    assert dict(read_order(release(tmp_path), "V1").places)["eager"] == STEP_LAYOUTS["V1"][0]


def test_the_hooks_of_a_layer_stand_around_its_attention(tmp_path: Path) -> None:
    assert read_layers(release(tmp_path)) == ("wait_for_layer_load", "attention", "save_kv_layer")


def test_a_release_as_it_is_known_fits(tmp_path: Path) -> None:
    assert fits(release(tmp_path)) is None


def test_a_release_without_finish_forward_fits(tmp_path: Path) -> None:
    assert fits(release(tmp_path, model_runner=("        self.kv_connector.finish_forward()\n", ""))) is None


def test_a_hook_that_a_release_moves_before_the_launch_is_named(tmp_path: Path) -> None:
    runner = V2_RUNNER.replace(POST_FORWARD, "").replace(
        "        if batch_desc.cg_mode == CUDAGraphMode.FULL:\n",
        POST_FORWARD + "        if batch_desc.cg_mode == CUDAGraphMode.FULL:\n",
        1,
    )
    reason = fits(release(tmp_path, model_runner=(V2_RUNNER, runner)))
    assert reason is not None
    assert "v1/worker/gpu/model_runner.py (model runner V2), step of kind 'one graph'" in reason
    assert "post_forward has moved: it came after sample, and comes after nothing" in reason


def test_a_hook_moved_within_vllms_own_connector_code_fits_because_that_code_runs(tmp_path: Path) -> None:
    unconditional = ("        if scheduler_output.has_sync_kv_loads:\n            ", "        ")
    assert fits(release(tmp_path, kv_connector=unconditional)) is None


def test_a_place_that_only_one_way_of_launching_has_is_named(tmp_path: Path) -> None:
    full = "            model_output = self.cudagraph_manager.run_fullgraph(batch_desc)\n"
    extra = full + "            self.kv_connector.no_forward(scheduler_output)\n"
    reason = fits(release(tmp_path, model_runner=(full, extra)))
    assert reason is not None
    assert "'one graph'" in reason
    assert "no_forward is new, after forward" in reason


def test_a_place_that_is_gone_is_named(tmp_path: Path) -> None:
    first = "            get_kv_transfer_group().handle_preemptions(scheduler_output.kv_connector_metadata)\n"
    reason = fits(release(tmp_path, gpu_model_runner=(first, "            pass\n")))
    assert reason is not None
    assert "(model runner V1)" in reason
    assert "handle_preemptions is no longer called" in reason


def test_the_runner_that_a_launch_does_not_use_does_not_matter(tmp_path: Path) -> None:
    first = "            get_kv_transfer_group().handle_preemptions(scheduler_output.kv_connector_metadata)\n"
    assert fits(release(tmp_path, gpu_model_runner=(first, "            pass\n")), "V2") is None


def test_places_are_found_in_helpers_of_the_runner(tmp_path: Path) -> None:
    helper = "\n    def after(self, finished_req_ids):\n" + POST_FORWARD
    runner = V2_RUNNER.replace(POST_FORWARD, "        self.after(finished_req_ids)\n") + helper
    assert fits(release(tmp_path, model_runner=(V2_RUNNER, runner))) is None


def test_an_order_that_depends_on_an_unknown_condition_is_not_guessed(tmp_path: Path) -> None:
    asked = "        if self.new_option:\n    " + POST_FORWARD
    vllm = release(tmp_path, model_runner=(POST_FORWARD + "        return", asked + "        return"))
    with pytest.raises(CannotRead, match="depends on a condition that is not known here"):
        read_order(vllm, "V2")
    assert "depends on a condition" in str(fits(vllm))


def test_hooks_of_a_layer_in_another_order_are_named(tmp_path: Path) -> None:
    load = "        connector.wait_for_layer_load(layer_name)\n"
    vllm = release(tmp_path, kv_transfer_utils=(load, ""))
    assert "wait_for_layer_load is no longer called" in str(fits(vllm))


@pytest.mark.parametrize(
    "gone", ["v1/worker/gpu/model_runner.py", "v1/worker/kv_connector_model_runner_mixin.py"]
)
def test_a_file_that_a_release_does_not_have_is_named(tmp_path: Path, gone: str) -> None:
    vllm = release(tmp_path)
    (vllm / gone).unlink()
    assert str(fits(vllm)) == f"{vllm / gone} is not there"


def test_a_runner_without_the_second_call_of_a_step_is_named(tmp_path: Path) -> None:
    renamed = ("def sample_tokens", "def sample_all_tokens")
    assert "there is no sample_tokens()" in str(fits(release(tmp_path, gpu_model_runner=renamed)))


def test_another_interpreter_can_ask(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "virtual_gpu.hook_order", str(release(tmp_path))],
        cwd=PLUGINS,
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"reason": null' in done.stdout


OWN = (PLUGINS / "virtual_gpu" / "runner.py").read_text()


@pytest.mark.parametrize("runner", ["V1", "V2"])
def test_the_virtual_gpus_own_runner_has_the_layouts_that_it_claims(runner: str) -> None:
    assert own_places(OWN, runner, tokens=7) in STEP_LAYOUTS[runner]
    assert own_places(OWN, runner, tokens=0) == EMPTY_LAYOUTS[runner]


def test_a_copy_of_it_with_a_hook_before_the_launch_has_not() -> None:
    after = "            kv_output = self._connector.post_forward(scheduler_output.finished_req_ids)\n"
    launch = "                step = self._launch(batch)\n"
    assert OWN.count(after) == 1
    copy = OWN.replace(after, "            pass\n").replace(launch, "    " + after + launch)
    assert own_places(copy, "V2", tokens=7) == (
        ("pre_forward", "post_forward", "forward", "finish_forward", "sample_tokens", "sample")
    )
    assert own_places(copy, "V2", tokens=7) not in STEP_LAYOUTS["V2"]


def own_places(source: str, runner: str, tokens: int) -> tuple[str, ...]:
    """The places of a ClockModelRunner, read as a release's are."""
    tree = ast.parse(source)
    (found,) = (n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "ClockModelRunner")
    marks = {"self._launch": "forward", "ClockedOutput": "sample", "self._pre_forward": "pre_forward"}
    own, words = within_reach(
        {f.name: f for f in found.body if isinstance(f, ast.FunctionDef)},
        [*hook_order.CONNECTOR_WORDS, "self._connector.", *(f"{mark}(" for mark in marks)],
    )
    names = {"V2": ("finish_forward", "post_forward", "no_forward"), "V1": ("handle_preemptions",)}[runner]
    touched = {name: ast.parse(f"def {name}(self): pass").body[0] for name in names}
    connector = Thing(touched, touch_points=frozenset(touched))  # type: ignore[arg-type]
    mixin = {f.name: f for f in ast.walk(ast.parse(V1_HOOKS)) if isinstance(f, ast.FunctionDef)}
    facts = {
        "batch.num_tokens": tokens,
        "self._v2": runner == "V2",
        "self._pending is None": False,
        "hasattr(self._connector, 'finish_forward')": True,
        "self._runs_as_one_graph(batch)": False,
        "has_kv_transfer_group()": True,
        "get_kv_transfer_group()": connector,
        "self._connector": connector,
        "KVConnectorModelRunnerMixin": Thing(mixin, touch_points=frozenset(mixin)),
    }

    def step(walked: Walk) -> None:
        walked.call(Thing(own), "execute_model")
        if tokens:
            walked.found.append(Place("sample_tokens", None))
            walked.call(Thing(own), "sample_tokens")

    (places,) = walk(step, facts, marks, words)
    return tuple(place.name for place in places)
