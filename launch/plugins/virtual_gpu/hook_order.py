"""Whether the virtual GPU calls a connector where a vLLM release's own model runners do, read from their source.

The hooks themselves are called by vLLM's code under the virtual GPU too (``ActiveKVConnector`` of model runner V2,
``KVConnectorModelRunnerMixin`` of V1). What ``ClockModelRunner`` repeats of a release is *where* its runner turns to that code:
before or after the forward is queued on the device, before or after sampling is. ``outline`` lists these places in the order of a
source, and ``RUNNERS`` holds the outlines that it repeats. Standard library only: preflight asks without vLLM being importable.
"""

import ast
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Runner:
    """A model runner of vLLM.

    Attributes:
        places: how a call's source begins -> the name of the place; None where the rest of the source names it.
        known: outlines of a step, which is ``execute_model`` and then ``sample_tokens``.
    """

    file: str
    places: Mapping[str, str | None]
    known: tuple[str, ...]


_V2_EXECUTES = "[ [ no_forward ] ] [ no_forward ] pre_forward forward"
_V2_SAMPLES = "sample_tokens [ post_forward ] sample post_forward"
RUNNERS = {
    "V2": Runner(
        "v1/worker/gpu/model_runner.py",
        {
            "self.kv_connector.": None,
            "self.cudagraph_manager.run_fullgraph": "forward",
            "self.cudagraph_manager.run_pw_graph": "forward",
            "self.ubatch_runner.run": "forward",
            "self.model": "forward",
            "self.sample": "sample",
        },
        # From 0.30 on, and before.
        (f"{_V2_EXECUTES} finish_forward {_V2_SAMPLES}", f"{_V2_EXECUTES} {_V2_SAMPLES}"),
    ),
    "V1": Runner(
        "v1/worker/gpu_model_runner.py",
        {
            "get_kv_transfer_group().": None,
            "self.kv_connector_no_forward": "no_forward",
            "self.maybe_get_kv_connector_output": "connector_output",
            "self.finalize_kv_connector": "finalize",
            "self._model_forward": "forward",
            "self._sample": "sample",
        },
        # Only with drafts it finalizes after sampling.
        (
            "[ handle_preemptions ] [ no_forward ] connector_output forward end_of_connector_output "
            "sample_tokens sample [ finalize ]",
        ),
    ),
}
LAYERS_FILE = "model_executor/layers/attention/kv_transfer_utils.py"
LAYERS = "[ attention ] has_connector_metadata [ attention ] wait_for_layer_load attention save_kv_layer"


def outline(
    functions: Mapping[str, ast.FunctionDef], name: str, places: Mapping[str, str | None]
) -> list[str]:
    """List the places of a function in the order of its source, with those of the methods of its own that it calls.

    What some steps alone do stands in brackets, the other way of two behind a bar: ``no_forward [ pre_forward | finish_forward ]``. Two
    ways with the same places are one.

    Raises:
        LookupError: there is no function of this name.
    """
    if name not in functions:
        raise LookupError(f"there is no {name}()")
    others = {other: function for other, function in functions.items() if other != name}

    def called(text: str) -> list[str]:
        for beginning, place in places.items():
            if text == beginning or (place is None and text.startswith(beginning)):
                return [place or text.removeprefix(beginning)]
        own = text.removeprefix("self.")
        return outline(others, own, places) if own != text and own in others else []

    def places_in(node: ast.AST) -> Iterator[str]:
        if isinstance(node, ast.If):
            yield from places_in(node.test)
            way, other = (
                [place for part in arm for place in places_in(part)] for arm in (node.body, node.orelse)
            )
            yield from way if way == other else ["[", *way, *["|"] * bool(other), *other, "]"]
        elif not isinstance(node, ast.FunctionDef | ast.Lambda):
            for child in ast.iter_child_nodes(node):
                yield from places_in(child)
            if isinstance(node, ast.Call):
                yield from called(ast.unparse(node.func))
            elif isinstance(node, ast.With):
                yield from (
                    f"end_of_{place}" for item in node.items for place in places_in(item.context_expr)
                )

    return [place for part in functions[name].body for place in places_in(part)]


def outline_of_step(methods: Mapping[str, ast.FunctionDef], places: Mapping[str, str | None]) -> str:
    """Return the outline of a model runner's step."""
    execute, sample = (outline(methods, name, places) for name in ("execute_model", "sample_tokens"))
    return " ".join([*execute, "sample_tokens", *sample])


def fits(vllm: Path, runner: str | None = None) -> str | None:
    """Say why the virtual GPU would call a release's connectors elsewhere than its own model runner; None where it would not.

    Args:
        vllm: the folder ``vllm`` of an installation or an unpacked wheel.
        runner: "V2" or "V1"; both by default.
    """
    try:
        layers = " ".join(
            outline(_functions(vllm / LAYERS_FILE), "wrapper", {"connector.": None, "func": "attention"})
        )
        if layers != LAYERS:
            return f"{LAYERS_FILE}: a layer has ({layers}), known is ({LAYERS})"
        for name in [runner] if runner else RUNNERS:
            known = RUNNERS[name]
            step = outline_of_step(_functions(vllm / known.file, "GPUModelRunner"), known.places)
            if step not in known.known:
                return f"{known.file} (model runner {name}): a step has ({step}), known is ({') or ('.join(known.known)})"
    except (OSError, SyntaxError, LookupError) as error:
        return str(error)
    return None


def _functions(path: Path, of_class: str | None = None) -> dict[str, ast.FunctionDef]:
    """Return the methods of a class by name, or every function of a file."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))))
    if of_class is not None:
        classes = [node for node in nodes if isinstance(node, ast.ClassDef) and node.name == of_class]
        if not classes:
            raise LookupError(f"{path}: there is no class {of_class}")
        nodes = classes[0].body
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def main() -> None:
    """``python -m virtual_gpu.hook_order VLLM``: whether a release fits, as JSON."""
    print(json.dumps({"reason": fits(Path(sys.argv[1]))}))


if __name__ == "__main__":
    main()
