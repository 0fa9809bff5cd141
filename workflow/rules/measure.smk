# The running wing. Each job leaves one receipt; its cells lie beside it, unknown to Snakemake, so that
# a job that fails or is killed never takes finished cells with it.
#
# exec, and no pipe: a measuring script must be Snakemake's own child, to notice its parent's death.


rule preflight:
    output:
        FOLDER.preflight_status,
    log:
        LOGS / "preflight.log",
    params:
        campaign=FOLDER.campaign_file,
        launches=STUDY.launches_hash(),
    shell:
        "exec python scripts/preflight.py --end-with-parent --campaign-file {params.campaign:q} --log {log:q}"


rule measure_a:
    input:
        FOLDER.preflight_status,
    output:
        STUDY.receipt("a"),
    log:
        LOGS / "measure_a_{connector}.log",
    priority: STUDY.position("a")
    resources:
        **STUDY.card("a"),
        gpu=1,
    params:
        campaign=FOLDER.campaign_file,
        phase="a",
        spec=STUDY.spec_hash("a"),
    shell:
        "exec python scripts/measure.py --end-with-parent --campaign-file {params.campaign:q}"
        " --connector {wildcards.connector:q} --phase {params.phase:q} --log {log:q}"


rule phase_a:
    input:
        STUDY.receipts("a"),


rule reference_rates:
    input:
        STUDY.receipts("a"),
    output:
        FOLDER.reference_rates,
    log:
        LOGS / "reference_rates.log",
    params:
        root=FOLDER.root,
    shell:
        "python scripts/select_reference_rates.py --root {params.root:q} 2>&1 | tee {log:q}"


# Of the embedded engine alone: the taxes of its cost model, to be set beside those that are found.
rule put_in:
    input:
        FOLDER.reference_rates,
    output:
        FOLDER.put_in,
    log:
        LOGS / "put_in.log",
    params:
        root=FOLDER.root,
    shell:
        "python scripts/put_in.py --root {params.root:q} 2>&1 | tee {log:q}"


use rule measure_a as measure_b with:
    input:
        FOLDER.preflight_status,
        FOLDER.reference_rates,
    output:
        STUDY.receipt("b"),
    log:
        LOGS / "measure_b_{connector}.log",
    priority: STUDY.position("b")
    resources:
        **STUDY.card("b"),
        gpu=1,
    params:
        campaign=FOLDER.campaign_file,
        phase="b",
        spec=STUDY.spec_hash("b"),


use rule measure_a as measure_b_prime with:
    input:
        FOLDER.preflight_status,
        FOLDER.reference_rates,
        STUDY.receipts_before("b_prime"),
    output:
        STUDY.receipt("b_prime"),
    log:
        LOGS / "measure_b_prime_{connector}.log",
    priority: STUDY.position("b_prime")
    resources:
        **STUDY.card("b_prime"),
        gpu=1,
    params:
        campaign=FOLDER.campaign_file,
        phase="b_prime",
        spec=STUDY.spec_hash("b_prime"),


rule phase_b:
    input:
        STUDY.receipts("b", "b_prime"),


use rule measure_a as measure_c with:
    input:
        FOLDER.preflight_status,
        FOLDER.reference_rates,
        STUDY.receipts_before("c"),
    output:
        STUDY.receipt("c"),
    log:
        LOGS / "measure_c_{connector}.log",
    priority: STUDY.position("c")
    resources:
        **STUDY.card("c"),
        gpu=1,
    params:
        campaign=FOLDER.campaign_file,
        phase="c",
        spec=STUDY.spec_hash("c"),


rule phase_c:
    input:
        STUDY.receipts("c"),


use rule measure_a as measure_d with:
    input:
        FOLDER.preflight_status,
        FOLDER.reference_rates,
        STUDY.receipts_before("d"),
    output:
        STUDY.receipt("d"),
    log:
        LOGS / "measure_d_{connector}.log",
    priority: STUDY.position("d")
    resources:
        **STUDY.card("d"),
        gpu=1,
    params:
        campaign=FOLDER.campaign_file,
        phase="d",
        spec=STUDY.spec_hash("d"),


rule phase_d:
    input:
        STUDY.receipts("d"),


# One block of repeats: every configuration once, plain twice, in an order of its own; on one card one block after the other.
use rule measure_a as measure_repeat with:
    input:
        FOLDER.preflight_status,
        FOLDER.reference_rates,
        lambda w: STUDY.receipts_before(w.phase),
    output:
        STUDY.receipt("{phase}"),
    log:
        LOGS / "measure_{phase}_{connector}.log",
    wildcard_constraints:
        phase="r[0-9]+",
    priority: STUDY.position(None)
    resources:
        **STUDY.card(None),
        gpu=1,
    params:
        campaign=FOLDER.campaign_file,
        phase=lambda w: w.phase,
        spec=STUDY.spec_hash(None),


rule repeats:
    input:
        STUDY.receipts(*STUDY.repeats()),


rule patch_reverted:
    input:
        STUDY.last_receipts(),
    output:
        touch(LOGS / "patch_reverted"),
    log:
        LOGS / "patch_reverted.log",
    params:
        campaign=FOLDER.campaign_file,
    shell:
        "python scripts/revert_patch.py --campaign-file {params.campaign:q} 2>&1 | tee {log:q}"
