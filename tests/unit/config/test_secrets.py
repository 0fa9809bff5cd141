"""Secrets of a config: refused where they are written out, referred to, and never repeated in a message."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from connector_tax.base.config import CampaignConfig, parse_campaign
from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.config.secrets import refuse_inline, with_references, without_harmless_references
from connector_tax.base.documents.campaign import CampaignDocument
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import document_of, to_json
from connector_tax.base.plan import campaign_document, cells_of, config_of, outputs_hash, spec_hash
from connector_tax.base.secrets import MASKED, masked

DEMO: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "config/demo.yaml").read_text())


def campaign(**engine: Any) -> CampaignConfig:
    return parse_campaign({**DEMO, "engine": {**DEMO["engine"], **engine}}, where="a.yaml")


def stored(config: CampaignConfig) -> CampaignDocument:
    text = to_json(campaign_document(config, date="2026-11-20", created_utc=""))
    return document_of(json.loads(text), CampaignDocument, "campaign.json")


def hashes(config: CampaignConfig) -> tuple[str, str]:
    return spec_hash(config, "plain", cells_of(config, "plain", "a")[0]), outputs_hash(config, "plain")


@pytest.mark.parametrize(
    ("engine", "place", "variable"),
    [
        ({"args": {"api_key": "planted-1"}}, "engine.args.api_key: a secret, by its name,", "API_KEY"),
        ({"args": {"hf_overrides": '{"auth": {"password": "planted-1"}}'}}, "engine.args.hf_overrides.auth.password", "PASSWORD"),
        ({"args": {"x": "redis://u:planted-1@h"}}, "engine.args.x: a password in a URL", "X"),
        ({"env": {"REDIS_PASSWORD": 12345678}}, "engine.env.REDIS_PASSWORD", "REDIS_PASSWORD"),
        ({"env": {"NOTE": "AKIA" + "1A2B" * 4}}, "engine.env.NOTE: an AWS key", "NOTE"),
        ({"extra_args": ["--db-password", "planted-1"]}, "engine.extra_args[1]", "DB_PASSWORD"),
        ({"extra_args": ["--x", '{"secret_key": "planted-1"}']}, "engine.extra_args[1].secret_key", "SECRET_KEY"),
        ({"extra_args": ["--header", "Authorization: Bearer planted-1"]}, "engine.extra_args[1]: an HTTP login", "HEADER"),
        ({"model": "https://u:planted-1@h"}, "engine.model: a password in a URL", "MODEL"),
    ],
)  # fmt: skip
def test_a_secret_that_is_written_out_is_refused_and_not_repeated(
    engine: dict[str, Any], place: str, variable: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        campaign(**engine)
    said = str(caught.value)
    assert said.startswith(f"a.yaml: {place}") and f"Write ${{{variable}}} and export {variable};" in said
    assert not any(secret in said for secret in ("planted-1", "12345678", "AKIA"))


def test_a_secret_of_a_connectors_entry_is_refused(tmp_path: Path) -> None:
    entries = yaml.safe_load((PROJECT_ROOT / "config/connectors.yaml").read_text())
    kv = {
        "kv_connector": "X",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"servers": [{"accessKey": "planted-1"}]},
    }
    entries["store"] = {"label": "store", "kv_transfer_config": kv}
    (tmp_path / "connectors.yaml").write_text(yaml.safe_dump(entries))
    config = {
        **DEMO,
        "connectors_file": str(tmp_path / "connectors.yaml"),
        "connectors": ["plain", "store"],
        "phase_b_prime": {},
    }
    with pytest.raises(
        ConfigError, match=r"store\.kv_transfer_config\.kv_connector_extra_config\.servers\[0\]\.accessKey: "
    ) as caught:
        parse_campaign(config, where="a.yaml")
    assert "planted-1" not in str(caught.value) and "allow_inline: [accessKey]" in str(caught.value)
    allowed = parse_campaign({**config, "allow_inline": ["accessKey"]}, where="a.yaml")
    assert "planted-1" in to_json(campaign_document(allowed, date="2026-11-20", created_utc=""))


@pytest.mark.parametrize(
    "value",
    [
        *({"api_key": "EMPTY"}, {"auth": "none", "hf_token": True, "password": None}, {"api_key": "${ANY}", "dsn": "redis://u:${ANY}@h"}),
        *({"image": "vllm/vllm-openai@sha256:" + "0123456789abcdef" * 4}, {"commit": "d752f721751a261968d47d66a33f0f0b3bdbe4ee"}),
        *({"path": "/models/hub/" + "long_name_of_a_folder/" * 8 + "a1" * 20}, {"bos_token": "<s>", "cache_key": "prefix", "max_tokens": 128}),
        *({"header": "Authorization: Bearer ${ANY}"}, ["--hf-token", "--enforce-eager", "--seed=1", "--x", '{"a": [1, null]}', "--y", "[no json"]),
    ],
)  # fmt: skip
def test_a_setting_a_reference_a_digest_a_commit_and_a_long_path_are_not_refused(value: Any) -> None:
    refuse_inline({"engine": value}, "a.yaml")


def test_a_key_that_may_be_written_out_is(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**DEMO, "engine": {**DEMO["engine"], "args": {"auth": "kerberos"}}, "allow_inline": ["auth"]}
    assert parse_campaign(config, where="a.yaml").engine.args["auth"] == "kerberos"
    with pytest.raises(ConfigError, match=r"allow_inline: a text is not allowed; wanted: `array`"):
        parse_campaign({**config, "engine": DEMO["engine"], "allow_inline": "auth"}, where="a.yaml")


@pytest.mark.parametrize("name", sorted(p.name for p in (PROJECT_ROOT / "config").glob("*.yaml")))
def test_a_shipped_config_holds_no_secret(name: str) -> None:
    refuse_inline(read_yaml(PROJECT_ROOT / "config" / name), name)


def test_a_reference_to_a_secret_stays_one_and_any_other_is_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name it stands under, by that of the variable, or by the format of what it holds."""
    given = {"HF_TOKEN": "abc", "ANY": "x", "LOOKS": "AKIAIOSFODNN7EXAMPLE", "LENGTH": "128"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    args = {
        "api_key": "${ANY}",
        "seed_file": "${ANY}",
        "note": "${LOOKS}",
        "max_model_len": "${LENGTH}000",
        "dsn": "redis://u:${ANY}@h",
    }
    config = campaign(
        args=args,
        extra_args=["--db-password", "${ANY}", "--x", "a${ANY}", "${HF_TOKEN}", "${NOT_SET_ANYWHERE}"],
    )
    assert config.engine.args == {**args, "seed_file": "x", "max_model_len": 128000}
    assert config.engine.extra_args == (
        "--db-password",
        "${ANY}",
        "--x",
        "ax",
        "${HF_TOKEN}",
        "${NOT_SET_ANYWHERE}",
    )
    assert stored(config).config["engine"]["args"]["api_key"] == "${ANY}"


def test_a_flag_in_the_same_word_tells_what_a_reference_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_ONE", "opensesame1")
    arguments = [
        "--seed=${DB_ONE}",
        "--redis-password=${DB_ONE}",
        "-e",
        "REDIS_PW=${DB_ONE}",
        '{"auth": {"pw": "${DB_ONE}"}}',
    ]
    assert without_harmless_references(arguments) == ["--seed=opensesame1", *arguments[1:]]


def test_a_variable_with_a_secret_is_refused_where_its_value_would_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HUB", "https://u:planted-1@hub/model")
    with pytest.raises(
        ConfigError, match=r"a\.yaml: engine\.model: \$\{HUB\} holds a password in a URL"
    ) as caught:
        campaign(model="${HUB}")
    assert "planted-1" not in str(caught.value)


def test_who_reads_a_config_knows_what_it_refers_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that wrote ``campaign.json``, one that reads it, and those that they start."""
    monkeypatch.setenv("ANY", "opensesame1")
    config = campaign(args={"api_key": "${ANY}"})
    for read in (lambda: campaign(args={"api_key": "${ANY}"}), lambda: config_of(stored(config))):
        monkeypatch.delenv("CONNECTOR_TAX_REFERENCES", raising=False)
        read()
        assert (
            masked("it is opensesame1") == f"it is {MASKED}"
            and os.environ["CONNECTOR_TAX_REFERENCES"] == "ANY"
        )


def test_a_reference_is_followed_at_the_launch_and_one_not_set_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PW", "abc")
    assert with_references({"a": ["${PW}-1", "${STORE}", 3]}, "x") == {"a": ["abc-1", "${STORE}", 3]}
    with pytest.raises(
        ConfigError, match=r"x\.a\[0\]: \$\{NOT_SET\}: that environment variable is not set\. Export NOT_SET"
    ):
        with_references({"a": ["${NOT_SET}"]}, "x")


def test_a_secret_is_in_no_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for value in ("one-key-1", "other-key-2"):
        monkeypatch.setenv("ANY_KEY", value)
        found.add(hashes(campaign(args={"api_key": "${ANY_KEY}"})))
    assert len(found) == 1


@pytest.mark.parametrize(
    "text",
    ["a: [\n- planted-1", "password: *planted-1", "password: !planted-1 x", "a: b\n  api_key: 'planted-1"],
)
def test_a_message_about_bad_yaml_names_the_place_and_none_of_the_text(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match="not valid YAML: line ") as caught:
        read_yaml(tmp_path / "a.yaml")
    assert "planted" not in str(caught.value)
