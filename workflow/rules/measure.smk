# The running wing. Each job leaves one receipt; its cells lie beside it, unknown to Snakemake, so that
# a job that fails or is killed never takes finished cells with it.


onstart:
    write_campaign_file()


# Belt and braces beside the rule revert_patch: these also run when a job failed or Ctrl-C came.
onsuccess:
    shell("{PYTHON} scripts/revert_patch.py --campaign-file {CAMPAIGN_FILE}")


onerror:
    shell("{PYTHON} scripts/revert_patch.py --campaign-file {CAMPAIGN_FILE}")


rule preflight:
    output:
        FOLDER.preflight_status,
    params:
        launches=hash_of([launch_spec(CAMPAIGN, c) for c in CONFIGS]),
    log:
        LOGS / "preflight.log",
    shell:
        "exec {PYTHON} scripts/preflight.py --campaign-file {CAMPAIGN_FILE} --log {log}"


def position(phase):
    """Earlier in the phase's seeded random order is started earlier."""
    order = run_order(CAMPAIGN, phase)
    return lambda wildcards: len(order) - order.index(wildcards.connector)


# exec, and no pipe: the script must be Snakemake's own child, so that it can notice its parent's death.
MEASURE = (
    "exec {PYTHON} scripts/measure.py --campaign-file {CAMPAIGN_FILE}"
    " --connector {wildcards.connector} --phase {params.phase} --log {log}"
)


rule measure_a:
    input:
        FOLDER.preflight_status,
    output:
        FOLDER.root / f"{DATE}_{{connector}}" / "phase_a" / "receipt.json",
    params:
        phase="a",
        spec=lambda w: run_spec_hash(CAMPAIGN, w.connector, "a"),
    priority: position("a")
    resources:
        gpu=1,
    log:
        LOGS / "measure_a_{connector}.log",
    shell:
        MEASURE


rule phase_a:
    input:
        receipts("a"),


rule reference_rates:
    input:
        receipts("a"),
    output:
        FOLDER.reference_rates,
    log:
        LOGS / "reference_rates.log",
    shell:
        "{PYTHON} scripts/select_reference_rates.py --root {FOLDER.root} 2>&1 | tee {log}"


use rule measure_a as measure_b with:
    input:
        FOLDER.preflight_status,
        FOLDER.reference_rates,
    output:
        FOLDER.root / f"{DATE}_{{connector}}" / "phase_b" / "receipt.json",
    params:
        phase="b",
        spec=lambda w: run_spec_hash(CAMPAIGN, w.connector, "b"),
    priority: position("b")
    log:
        LOGS / "measure_b_{connector}.log",


use rule measure_a as measure_b_prime with:
    input:
        FOLDER.preflight_status,
        FOLDER.reference_rates,
        receipts("b"),
    output:
        FOLDER.root / f"{DATE}_{{connector}}" / "phase_b_prime" / "receipt.json",
    params:
        phase="b_prime",
        spec=lambda w: run_spec_hash(CAMPAIGN, w.connector, "b_prime"),
    priority: position("b_prime")
    log:
        LOGS / "measure_b_prime_{connector}.log",


rule phase_b:
    input:
        receipts("b"),
        receipts("b_prime"),


rule revert_patch:
    input:
        receipts("b"),
        receipts("b_prime"),
    output:
        touch(LOGS / "patch_reverted"),
    log:
        LOGS / "revert_patch.log",
    shell:
        "{PYTHON} scripts/revert_patch.py --campaign-file {CAMPAIGN_FILE} 2>&1 | tee {log}"
