# The running wing. Each job makes one receipt. Its cells lie beside it, unknown to Snakemake, so that a job
# that fails or is killed keeps its finished cells.
#
# A run with a valid receipt has no rule here, so nothing can measure it again, whatever Snakemake concludes
# from times, parameters and code.
# exec, and no pipe: a measuring script must be Snakemake's own child to notice its parent's death.


rule preflight:
    input:
        STUDY.newer_than(FOLDER.preflight_status),
    output:
        FOLDER.preflight_status,
    log:
        LOGS / "preflight.log",
    params:
        campaign=FOLDER.campaign_file,
    shell:
        'exec python "$CONNECTOR_TAX_SCRIPTS"/preflight.py --end-with-parent $CONNECTOR_TAX_SNAKEMAKE --campaign-file {params.campaign:q} --log {log:q}'


rule measure:
    input:
        STUDY.before,
    output:
        STUDY.receipt,
    log:
        LOGS / "measure_{phase}_{connector}.log",
    wildcard_constraints:
        connector=STUDY.left_pattern,
        phase="[a-z_0-9]+",
    priority: STUDY.position
    resources:
        **STUDY.cards(),
        gpu=1,
    params:
        campaign=FOLDER.campaign_file,
    shell:
        'exec python "$CONNECTOR_TAX_SCRIPTS"/measure.py --end-with-parent $CONNECTOR_TAX_SNAKEMAKE --campaign-file {params.campaign:q}'
        " --connector {wildcards.connector:q} --phase {wildcards.phase:q} --log {log:q}"


rule reference_rates:
    input:
        STUDY.before_rates(),
    output:
        FOLDER.reference_rates,
    log:
        LOGS / "reference_rates.log",
    params:
        root=FOLDER.root,
    shell:
        'python "$CONNECTOR_TAX_SCRIPTS"/select_reference_rates.py --root {params.root:q} 2>> {log:q} | tee -a {log:q}'


# For the embedded engine only: its cost model's taxes, to be compared with the measured ones.
rule put_in:
    input:
        STUDY.newer_than(FOLDER.put_in),
        STUDY.if_left(FOLDER.reference_rates),
    output:
        FOLDER.put_in,
    log:
        LOGS / "put_in.log",
    params:
        root=FOLDER.root,
    shell:
        'python "$CONNECTOR_TAX_SCRIPTS"/put_in.py --root {params.root:q} 2>> {log:q} | tee -a {log:q}'


rule patch_reverted:
    input:
        STUDY.left(),
    output:
        touch(LOGS / "patch_reverted"),
    log:
        LOGS / "patch_reverted.log",
    params:
        campaign=FOLDER.campaign_file,
    shell:
        'python "$CONNECTOR_TAX_SCRIPTS"/revert_patch.py --campaign-file {params.campaign:q} 2>> {log:q} | tee -a {log:q}'


# The stages by name.


rule phase_a:
    input:
        STUDY.receipts("a"),


rule phase_b:
    input:
        STUDY.receipts("b", "b_prime"),


rule phase_c:
    input:
        STUDY.receipts("c"),


rule phase_d:
    input:
        STUDY.receipts("d"),


rule repeats:
    input:
        STUDY.receipts(*STUDY.repeats()),
