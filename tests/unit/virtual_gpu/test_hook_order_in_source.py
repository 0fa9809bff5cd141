"""The order of a connector's hooks is read from a release's sources, and a release that moves one is named."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from release_sources import V2_RUNNER, release
from virtual_gpu.hook_order import fits, outline, outline_of_step

PLUGINS = Path(__file__).parents[3] / "launch" / "plugins"
POST_FORWARD = "        kv_connector_output = self.kv_connector.post_forward(finished_req_ids)\n"


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
    assert "v1/worker/gpu/model_runner.py (model runner V2)" in reason
    assert "[ no_forward ] post_forward pre_forward forward" in reason


def test_a_hook_moved_within_vllms_own_connector_code_fits_because_that_code_runs(tmp_path: Path) -> None:
    unconditional = ("        if scheduler_output.has_sync_kv_loads:\n            ", "        ")
    assert fits(release(tmp_path, kv_connector=unconditional)) is None


def test_a_place_that_only_one_way_of_launching_has_is_named(tmp_path: Path) -> None:
    full = "            model_output = self.cudagraph_manager.run_fullgraph(batch_desc)\n"
    extra = full + "            self.kv_connector.no_forward(scheduler_output)\n"
    reason = fits(release(tmp_path, model_runner=(full, extra)))
    assert reason is not None
    assert "[ pre_forward forward no_forward | pre_forward forward ]" in reason


def test_a_place_that_is_gone_is_named(tmp_path: Path) -> None:
    first = "            get_kv_transfer_group().handle_preemptions(scheduler_output.kv_connector_metadata)\n"
    reason = fits(release(tmp_path, gpu_model_runner=(first, "            pass\n")))
    assert reason is not None
    assert "(model runner V1): a step has ([ no_forward ] connector_output" in reason


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
    assert "sample [ post_forward ])" in str(fits(vllm))


def test_hooks_of_a_layer_in_another_order_are_named(tmp_path: Path) -> None:
    load = "        connector.wait_for_layer_load(layer_name)\n"
    vllm = release(tmp_path, kv_transfer_utils=(load, ""))
    assert "a layer has ([ attention ] has_connector_metadata [ attention ] attention save_kv_layer)" in str(
        fits(vllm)
    )


@pytest.mark.parametrize("gone", ["v1/worker/gpu/model_runner.py", "v1/worker/gpu_model_runner.py"])
def test_a_file_that_a_release_does_not_have_is_named(tmp_path: Path, gone: str) -> None:
    vllm = release(tmp_path)
    (vllm / gone).unlink()
    assert f"No such file or directory: '{vllm / gone}'" in str(fits(vllm))


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


PLACES = {
    "self._pre_forward": "pre_forward",
    "self._connector.": None,
    "get_kv_transfer_group().": None,
    "KVConnectorModelRunnerMixin.kv_connector_no_forward": "no_forward",
    "KVConnectorModelRunnerMixin.maybe_get_kv_connector_output": "connector_output",
    "self._launch": "forward",
    "ClockedOutput": "sample",
}
# The known outlines without steps that only warm up, pipeline stages and drafts. ``finish_forward`` is called where a release has it.
OWN_OUTLINES = {
    "V2": "[ no_forward ] pre_forward forward [ finish_forward ] sample_tokens sample post_forward",
    "V1": "[ handle_preemptions ] [ no_forward ] connector_output forward end_of_connector_output sample_tokens sample",
}


@pytest.mark.parametrize("runner", ["V1", "V2"])
def test_the_virtual_gpus_own_runner_has_the_outlines_that_it_claims(runner: str) -> None:
    assert own_outline(OWN, runner) == OWN_OUTLINES[runner]


def test_a_copy_of_it_with_a_hook_before_the_launch_has_not() -> None:
    after = "            kv_output = self._connector.post_forward(scheduler_output.finished_req_ids)\n"
    launch = "                step = self._launch(batch)\n"
    assert OWN.count(after) == 1
    copy = OWN.replace(after, "            pass\n").replace(launch, "    " + after + launch)
    assert own_outline(copy, "V2") != OWN_OUTLINES["V2"]


def test_a_context_manager_of_connector_code_ends_where_its_block_does() -> None:
    source = "def step(self):\n    with self.connector.bound():\n        self.model()\n    self.sample()"
    places = {"self.connector.": None, "self.model": "forward", "self.sample": "sample"}
    assert outline(functions(source), "step", places) == ["bound", "forward", "end_of_bound", "sample"]


def functions(source: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}


def own_outline(source: str, runner: str) -> str:
    """The outline of a ClockModelRunner under one of the two, read as a release's is."""

    class Chosen(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
            self.generic_visit(node)
            holds = {"self._v2": runner == "V2"}.get(ast.unparse(node.test))
            if ast.unparse(node.test).startswith("not self._v2 and ") and runner == "V2":
                holds = False
            return node if holds is None else node.body if holds else node.orelse

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
            self.generic_visit(node)
            ends = next(
                (k for k, part in enumerate(node.body) if isinstance(part, ast.Return)), len(node.body)
            )
            node.body = node.body[: ends + 1]
            return node

    return outline_of_step(functions(ast.unparse(Chosen().visit(ast.parse(source)))), PLACES)
