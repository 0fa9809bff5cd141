"""What a campaign sets itself cannot be set a second time, however it is written."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from connector_tax.base.config import load_campaign, parse_campaign
from connector_tax.base.config.reserved import RESERVED, WHOLE, check_launch
from connector_tax.base.errors import ConfigError
from connector_tax.run.engine.command import engine_arguments

CONFIG = Path(__file__).parents[3] / "config"


def campaign(
    tmp_path: Path, engine: dict[str, Any] | None = None, entry: dict[str, Any] | None = None
) -> None:
    value = yaml.safe_load((CONFIG / "demo.yaml").read_text())
    value["engine"] |= engine or {}
    known = yaml.safe_load((CONFIG / "connectors.yaml").read_text())
    known["nixl_both"] |= entry or {}
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump(known))
    value["connectors_file"] = str(tmp_path / "connectors.yaml")
    parse_campaign(value, where="mine.yaml")


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (
            {"args": {"host": "0.0.0.0"}},
            "mine.yaml: engine.args.host: '--host' would set --host, which may not be set here: the engine listens on 127.0.0.1 alone",
        ),
        ({"args": {"port": 8001}}, "which may not be set here: set engine.port. Leave it out."),
        ({"args": {"uds": "/tmp/socket"}}, "127.0.0.1 alone"),
        ({"extra_args": ["--config", "engine.yaml"]}, "engine.extra_args[0]: '--config' would set --config"),
        ({"extra_args": ["--seed", "1", "--host=0.0.0.0"]}, "engine.extra_args[2]: '--host=0.0.0.0'"),
        ({"extra_args": ["--hos", "0.0.0.0"]}, "'--hos' would set --host"),
        ({"extra_args": ["--kv_transfer_config.x+=1"]}, "would set --kv-transfer-config"),
        ({"extra_args": ["-n2"]}, "'-n2' would set --nnodes"),
        ({"extra_args": ["-n1_0"]}, "'-n1_0' would set --nnodes"),
        ({"extra_args": ["-n\t2"]}, "would set --nnodes"),
        # vLLM 0.32 makes a connector of these, for plain as well, and in the place of any other.
        (
            {"args": {"kv_offloading_size": 4}},
            "'--kv_offloading_size' would set --kv-offloading-size, which may not be set here: it is the",
        ),
        ({"extra_args": ["-dpa.x=1"]}, "'-dpa.x=1' would set --data-parallel-address"),
        (
            {"env": {"VLLM_MODEL_REDIRECT_PATH": "/a"}},
            "engine.env.VLLM_MODEL_REDIRECT_PATH: vLLM would load another model",
        ),
        (
            {"env": {"CONNECTOR_TAX_RUN": "x"}},
            "mine.yaml: engine.env.CONNECTOR_TAX_RUN: the pipeline sets CONNECTOR_TAX_RUN itself",
        ),
    ],
)
def test_the_engine_cannot_be_sent_elsewhere(tmp_path: Path, engine: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as told:
        campaign(tmp_path, engine)
    assert message in str(told.value)
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"extra_args": ["--hos=0.0.0.0"]}, "nixl_both.extra_args[0]: '--hos=0.0.0.0' would set --host"),
        (
            {"env": {"AGENTIC_STEP_LOG_PATH": "x"}},
            "nixl_both.env.AGENTIC_STEP_LOG_PATH: the pipeline sets AGENTIC_STEP_LOG_PATH itself",
        ),
    ],
)
def test_nor_by_a_connectors_entry(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as told:
        campaign(tmp_path, entry=entry)
    assert message in str(told.value)


def test_a_refusal_repeats_no_secret(tmp_path: Path) -> None:
    kv = '--kv-transfer-config={"kv_connector_extra_config": {"redis_password": "Zq8v,T2x"}}'
    with pytest.raises(ConfigError) as told:
        campaign(tmp_path, {"extra_args": [kv]})
    assert "redis_password" in str(told.value) and "T2x" not in str(told.value)


def test_nor_by_a_campaign_file_that_was_edited() -> None:
    config = load_campaign(CONFIG / "demo.yaml")
    edited = replace(config.engine, args={"host": "0.0.0.0"})
    with pytest.raises(ConfigError, match=r"campaign\.json: engine\.args\.host"):
        engine_arguments(edited, config.connector("plain"))


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_every_beginning_of_a_name_is_refused(name: str) -> None:
    """argparse takes any that is unique, and which are depends on the release."""
    for length in range(1, len(name) + 1):
        if name[:length] not in WHOLE:
            with pytest.raises(ConfigError):
                check_launch([f"--{name[:length]}", "x"], {}, "mine.yaml: engine")


def test_what_shapes_the_engine_stays_open(tmp_path: Path) -> None:
    """Also names that begin as a reserved one does, and what is left out with null."""
    args = {"host": None, "tensor_parallel_size": 2, "data_parallel_size": 2, "api_server_count": 2}
    args |= {"hf_overrides": "{}", "model_impl": "auto", "config_format": "auto", "max_num_seqs": 8}
    more = ["--data-parallel-size=2", "-dp", "2", "-tp", "1", "-O3", "--compilation-config", '{"--host": 1}']
    env = {"VLLM_HOST_IP": "127.0.0.1", "VLLM_PORT": "20000"}
    campaign(tmp_path, {"args": args, "extra_args": more, "env": env})
