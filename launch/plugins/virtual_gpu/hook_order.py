"""In which order a vLLM release's own model runners call a connector, read from their source; and whether the virtual GPU does the same.

The hooks themselves are called by vLLM's code under the virtual GPU too (``ActiveKVConnector`` of model runner V2,
``KVConnectorModelRunnerMixin`` of V1). What ``ClockModelRunner`` repeats of a release is *where* its runner turns to that code:
before or after the forward is queued on the device, before or after sampling is. ``LAYOUTS`` names what it repeats, ``fits`` compares.
Standard library only: preflight asks without vLLM being importable.
"""

import ast
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from virtual_gpu.source_things import CannotRead, Place, Thing, within_reach
from virtual_gpu.source_walk import Walk, walk

# What a step can be, with what is then true in a runner's source. V1 has one way of launching.
_TOKENS = {"scheduler_output.total_num_scheduled_tokens": 7}
_FULL, _PIECEWISE, _NONE = "FULL", "PIECEWISE", "NONE"
CASES: Mapping[str, Mapping[str, Any]] = {
    "one graph": {**_TOKENS, "batch_desc.cg_mode": _FULL, "scheduler_output.has_sync_kv_loads": False},
    "pieces": {**_TOKENS, "batch_desc.cg_mode": _PIECEWISE, "scheduler_output.has_sync_kv_loads": False},
    "eager": {**_TOKENS, "batch_desc.cg_mode": _NONE, "scheduler_output.has_sync_kv_loads": False},
    "loads that the step needs": {
        **_TOKENS,
        "batch_desc.cg_mode": _NONE,
        "scheduler_output.has_sync_kv_loads": True,
    },
    "nothing to compute": {
        "scheduler_output.total_num_scheduled_tokens": 0,
        "batch_desc.cg_mode": _NONE,
        "scheduler_output.has_sync_kv_loads": False,
    },
}
# True of every launch that the virtual GPU models: one device, text in, tokens out, no drafts.
_ONE_DEVICE = {
    "CUDAGraphMode.FULL": _FULL,
    "CUDAGraphMode.PIECEWISE": _PIECEWISE,
    "CUDAGraphMode.NONE": _NONE,
    "self.is_last_pp_rank": True,
    "get_pp_group().is_last_rank": True,
    "self.execute_model_state is None": False,
    "self.is_pooling_model": False,
    "self.broadcast_pp_output": False,
    "self.speculative_config": None,
    "self.speculator": None,
    "ubatch_state": None,
    "batch_desc.num_tokens": 7,
    "has_kv_transfer_group()": True,
    "has_ec_transfer()": False,
    "self._disabled": False,
}


@dataclass(frozen=True, slots=True)
class Runner:
    """Where a model runner and its connector code are, and how it launches and samples."""

    file: str
    hooks_file: str
    hooks_class: str
    marks: Mapping[str, str]
    # Whether the connector code is a base class of the runner (V1) or an attribute of it (V2).
    is_mixin: bool


RUNNERS = {
    "V2": Runner(
        "v1/worker/gpu/model_runner.py",
        "v1/worker/gpu/kv_connector.py",
        "ActiveKVConnector",
        {
            "self.cudagraph_manager.run_fullgraph": "forward",
            "self.cudagraph_manager.run_pw_graph": "forward",
            "self.ubatch_runner.run": "forward",
            "self.model": "forward",
            "self.sample": "sample",
        },
        is_mixin=False,
    ),
    "V1": Runner(
        "v1/worker/gpu_model_runner.py",
        "v1/worker/kv_connector_model_runner_mixin.py",
        "KVConnectorModelRunnerMixin",
        {"self._model_forward": "forward", "self._sample": "sample"},
        is_mixin=True,
    ),
}
# One of them stands wherever a runner's source turns to its connector.
CONNECTOR_WORDS = ("kv_connector", "kv_transfer_group")
LAYERS_FILE = "model_executor/layers/attention/kv_transfer_utils.py"
LAYERS = ("wait_for_layer_load", "attention", "save_kv_layer")

# The places that ClockModelRunner has, by runner; what stands before `sample_tokens` is in execute_model.
_V2_FROM_0_30 = ("pre_forward", "forward", "finish_forward", "sample_tokens", "sample", "post_forward")
_V2_BEFORE = ("pre_forward", "forward", "sample_tokens", "sample", "post_forward")
_V1 = (
    "handle_preemptions",
    "enter maybe_get_kv_connector_output",
    "forward",
    "leave maybe_get_kv_connector_output",
    "sample_tokens",
    "sample",
)
STEP_LAYOUTS = {"V2": (_V2_FROM_0_30, _V2_BEFORE), "V1": (_V1,)}
EMPTY_LAYOUTS = {"V2": ("no_forward",), "V1": ("handle_preemptions", "kv_connector_no_forward")}


@dataclass(frozen=True, slots=True)
class Order:
    """What one runner of a release does in each case of ``CASES``.

    Attributes:
        places: case and the runner's own calls: its touch points with connector code, ``forward`` (queued on the device),
            ``sample_tokens`` (the engine core's second call of the step) and ``sample`` (queued).
    """

    runner: str
    places: tuple[tuple[str, tuple[str, ...]], ...]


def read_order(vllm: Path, runner: str) -> Order:
    """The order in a release.

    Args:
        vllm: the folder ``vllm`` of an installation or an unpacked wheel.
        runner: "V2" or "V1".

    Raises:
        CannotRead: a file, class or method is not there, or the order depends on something unknown here.
    """
    known = RUNNERS[runner]
    connector = Thing(is_connector=True)
    hooks = _methods(vllm / known.hooks_file, known.hooks_class)
    own, words = within_reach(
        _methods(vllm / known.file, "GPUModelRunner"),
        [*CONNECTOR_WORDS, *(f"{mark}(" for mark in known.marks)],
    )
    if known.is_mixin:
        me = Thing({**hooks, **own}, touch_points=frozenset(hooks))
        names = {known.hooks_class: me}
    else:
        wrapper = Thing(hooks, {"kv_connector": connector}, frozenset(hooks))
        me, names = Thing(own, {"kv_connector": wrapper}), {}
    facts = {**_ONE_DEVICE, **names, "get_kv_transfer_group()": connector}
    places = []
    for case, true_then in CASES.items():
        steps = walk(_step_of(me, true_then), {**facts, **true_then}, known.marks, words)
        found = _only(steps, f"{known.file} (model runner {runner}), step of kind '{case}'")
        places.append((case, tuple(p.name for p in found if p.inside is None)))
    return Order(runner, tuple(places))


def read_layers(vllm: Path) -> tuple[str, ...]:
    """What runs around the attention of one layer, where it runs in Python at all.

    Raises:
        CannotRead: as for ``read_order``.
    """
    functions = {
        node.name: node
        for node in ast.walk(_parsed(vllm / LAYERS_FILE))
        if isinstance(node, ast.FunctionDef) and node.name == "wrapper"
    }
    connector = Thing(is_connector=True)
    facts = {
        "has_kv_transfer_group()": True,
        "is_v1_kv_transfer_group()": True,
        "attn_metadata is None": False,
        "connector.has_connector_metadata()": True,
        "get_kv_transfer_group()": connector,
    }
    marks, words = {"func": "attention"}, frozenset(["connector", "func("])
    found = walk(lambda walked: walked.call(Thing(functions), "wrapper"), facts, marks, words)
    return tuple(p.name for p in _only(found, LAYERS_FILE))


def fits(vllm: Path, runner: str | None = None) -> str | None:
    """Why the virtual GPU would call a release's connectors in another order than its own model runner; None where it would not.

    Args:
        vllm: the folder ``vllm``.
        runner: "V2" or "V1"; both by default.
    """
    try:
        layers = read_layers(vllm)
        if layers != LAYERS:
            return f"{LAYERS_FILE}: {_moved(LAYERS, layers)}"
        for name in [runner] if runner else list(RUNNERS):
            reason = _unlike(read_order(vllm, name))
            if reason is not None:
                return f"{RUNNERS[name].file} (model runner {name}), {reason}"
    except CannotRead as error:
        return str(error)
    return None


def _unlike(order: Order) -> str | None:
    for case, places in order.places:
        known = (EMPTY_LAYOUTS[order.runner],) if case == "nothing to compute" else STEP_LAYOUTS[order.runner]
        if places not in known:
            nearest = max(known, key=lambda layout: SequenceMatcher(None, layout, places).ratio())
            return f"step of kind '{case}': {_moved(nearest, places)}"
    kinds = {places for case, places in order.places if case != "nothing to compute"}
    if len(kinds) > 1:
        return f"steps of different kinds have different places: {sorted(kinds)}"
    return None


def _moved(known: tuple[str, ...], found: tuple[str, ...]) -> str:
    """What is new, what is gone and what has moved, for a reader who knows the names."""
    parts = [f"{name} is no longer called" for name in known if name not in found]
    parts += [f"{name} is new, after {_before(found, name)}" for name in found if name not in known]
    common_known = [name for name in known if name in found]
    common_found = [name for name in found if name in known]
    blocks = SequenceMatcher(None, common_known, common_found).get_matching_blocks()
    in_place = {name for block in blocks for name in common_known[block.a : block.a + block.size]}
    parts += [
        f"{name} has moved: it came after {_before(known, name)}, and comes after {_before(found, name)}"
        for name in dict.fromkeys(common_found)
        if name not in in_place
    ]
    parts = parts or [f"something is called {len(found)} times instead of {len(known)}"]
    return f"{'; '.join(parts)} (known: {', '.join(known)}; found: {', '.join(found) or 'nothing'})"


def _before(names: tuple[str, ...], name: str) -> str:
    at = names.index(name)
    return names[at - 1] if at else "nothing"


def _step_of(runner: Thing, facts: Mapping[str, Any]) -> Callable[[Walk], None]:
    """A step as the engine core asks for it."""

    def step(walked: Walk) -> None:
        walked.call(runner, "execute_model")
        if facts["scheduler_output.total_num_scheduled_tokens"]:
            walked.found.append(Place("sample_tokens", None))
            walked.call(runner, "sample_tokens")

    return step


def _only(found: list[tuple[Place, ...]], where: str) -> tuple[Place, ...]:
    if len(found) > 1:
        orders = " | ".join(", ".join(p.name for p in one) for one in found)
        raise CannotRead(f"{where}: the order depends on a condition that is not known here: {orders}")
    return found[0]


def _methods(path: Path, name: str) -> dict[str, ast.FunctionDef]:
    for node in _parsed(path).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
    raise CannotRead(f"{path}: there is no class {name}")


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CannotRead(f"{path} is not there") from error
    except SyntaxError as error:
        raise CannotRead(
            f"{path} is not Python of this interpreter ({sys.version.split()[0]}): {error}"
        ) from error


def main() -> None:
    """``python -m virtual_gpu.hook_order VLLM``: whether a release fits, as JSON."""
    print(json.dumps({"reason": fits(Path(sys.argv[1]))}))


if __name__ == "__main__":
    main()
