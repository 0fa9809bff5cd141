"""The accuracy pass of a launch: a fixed set of prompts, whose answers are compared with plain's."""

from connector_tax.base.documents.outputs import Output, OutputsFile
from connector_tax.base.documents.reading import read_document
from connector_tax.base.files import write_json
from connector_tax.base.plan import outputs_hash
from connector_tax.run.engine.process import RunningEngine
from connector_tax.run.loadgen.outputs import collect_outputs
from connector_tax.run.measure.launch import Run


def outputs_collected(run: Run) -> bool:
    """Whether this run's accuracy pass is done, or wanted by nobody."""
    # Two launches of each configuration are enough to see what repeats; those of the other phases are the shortest.
    if run.config.accuracy.prompts == 0 or run.run.phase not in ("a", "b"):
        return True
    wanted = outputs_hash(run.config, run.connector_id)
    return run.run.outputs.exists() and read_document(run.run.outputs, OutputsFile).spec_hash == wanted


def _death(engine: RunningEngine, outputs: list[Output]) -> str | None:
    """What it died of, where an answer is missing; None while it lives."""
    return engine.death_behind_silence() if any("error" in output for output in outputs) else None


def collect_run_outputs(run: Run, engine: RunningEngine, *, last_try: bool) -> None:
    """Ask, and write down what was answered.

    Args:
        last_try: also where the engine died of it or meanwhile; else nothing is written then, and another launch is asked.
    """
    if outputs_collected(run):
        return
    accuracy, cell = run.config.accuracy, run.config.cell
    run.progress.say(f"accuracy pass: {accuracy.prompts} prompts")
    outputs = collect_outputs(
        engine.base_url,
        engine.model,
        seed=run.config.seed,
        prompts=accuracy.prompts,
        input_tokens=accuracy.input_tokens,
        output_tokens=accuracy.output_tokens,
        token_ids=(cell.token_id_low, cell.token_id_high),
        headers=engine.headers,
    )
    death = _death(engine, outputs)
    if death is not None and not last_try:
        run.progress.say(f"the engine died in the accuracy pass, another launch is asked: {death}")
        return
    document = OutputsFile(
        campaign=run.config.campaign,
        connector=run.connector_id,
        spec_hash=outputs_hash(run.config, run.connector_id),
        outputs=outputs,
    )
    write_json(run.run.outputs, document)
