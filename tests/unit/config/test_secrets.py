"""Secrets of a config: referred to, kept out of documents, handed on to launches, and never repeated in a message."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from connector_tax.base.config import CampaignConfig, load_campaign, parse_campaign
from connector_tax.base.config.checked import PROJECT_ROOT, read_yaml
from connector_tax.base.config.secrets import (
    hand_on,
    with_originals,
    with_references,
    without_harmless_references,
)
from connector_tax.base.documents.campaign import CampaignDocument, campaign_of
from connector_tax.base.errors import ConfigError
from connector_tax.base.files import to_json
from connector_tax.base.plan import campaign_document, cells_of, config_of, outputs_hash, spec_hash
from connector_tax.base.redaction import BLANKED, CONFIG_VARIABLE

DEMO: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "config/demo.yaml").read_text())


def campaign(**engine: Any) -> CampaignConfig:
    return parse_campaign({**DEMO, "engine": {**DEMO["engine"], **engine}}, where="a.yaml")


def stored(config: CampaignConfig) -> CampaignDocument:
    text = to_json(campaign_document(config, date="2026-11-20", created_utc=""))
    return campaign_of(json.loads(text), "campaign.json")


def hashes(config: CampaignConfig) -> tuple[str, str]:
    return spec_hash(config, "plain", cells_of(config, "plain", "a")[0]), outputs_hash(config, "plain")


def test_a_reference_to_a_secret_stays_one_and_any_other_is_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name it stands under, by that of the variable, or by the look of what it holds."""
    for name, value in {
        "HF_TOKEN": "abc",
        "ANY": "x",
        "LOOKS": "AKIAIOSFODNN7EXAMPLE",
        "LENGTH": "128",
    }.items():
        monkeypatch.setenv(name, value)
    args = {"api_key": "${ANY}", "seed_file": "${ANY}", "note": "${LOOKS}", "max_model_len": "${LENGTH}000"}
    config = campaign(
        args=args,
        extra_args=["--db-password", "${ANY}", "--x", "a${ANY}", "${HF_TOKEN}", "${NOT_SET_ANYWHERE}"],
    )
    assert config.engine.args == {
        "api_key": "${ANY}",
        "seed_file": "x",
        "note": "${LOOKS}",
        "max_model_len": 128000,
    }
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
    arguments = ["--seed=${DB_ONE}", "--redis-password=${DB_ONE}", "-e", "REDIS_PW=${DB_ONE}"]
    assert without_harmless_references(arguments) == ["--seed=opensesame1", *arguments[1:]]


def test_a_reference_is_followed_at_the_launch_and_one_not_set_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PW", "abc")
    assert with_references({"a": ["${PW}-1", "${STORE}", 3]}, "x") == {"a": ["abc-1", "${STORE}", 3]}
    with pytest.raises(
        ConfigError, match=r"x\.a\[0\]: \$\{NOT_SET\}: that environment variable is not set\. Export NOT_SET"
    ):
        with_references({"a": ["${NOT_SET}"]}, "x")


def test_a_secret_in_the_environment_is_in_no_hash_and_two_in_configs_are_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = set()
    for value in ("one-key-1", "other-key-2"):
        monkeypatch.setenv("ANY_KEY", value)
        found.add(hashes(campaign(args={"api_key": "${ANY_KEY}"})))
    assert len(found) == 1
    assert hashes(campaign(args={"api_key": "one-key-1"})) != hashes(
        campaign(args={"api_key": "other-key-2"})
    )


def test_who_inherits_the_config_launches_and_hashes_with_the_originals() -> None:
    config = campaign(
        args={"api_key": "one-key-1"}, env={"HF_TOKEN": "abc"}, extra_args=["--db-password", "x"]
    )
    environment: dict[str, str] = {}
    hand_on(config, environment)
    document = stored(config)
    assert "one-key-1" not in json.dumps(document.config)
    again = config_of(with_originals(document, environment))
    assert again == config and hashes(again) == hashes(config)


def test_without_it_the_blanked_places_are_named() -> None:
    document = stored(campaign(args={"api_key": "one-key-1"}, extra_args=["--db-password", "x"]))
    with pytest.raises(
        ConfigError, match=r"config\.engine\.args\.api_key, config\.engine\.extra_args\[1\]: blanked"
    ):
        with_originals(document, {})


def test_the_config_of_another_campaign_fills_nothing() -> None:
    config = campaign(args={"api_key": "one-key-1"})
    environment: dict[str, str] = {}
    hand_on(replace(config, seed=config.seed + 1), environment)
    with pytest.raises(ConfigError, match="blanked"):
        with_originals(stored(config), environment)


def test_a_config_without_secrets_is_handed_to_nobody() -> None:
    environment = {CONFIG_VARIABLE: "of an earlier campaign"}
    hand_on(load_campaign(PROJECT_ROOT / "config/demo.yaml"), environment)
    assert environment == {}


@pytest.mark.parametrize("name", ["config.yaml", "demo.yaml", "vllm-cpu.yaml"])
def test_a_shipped_campaign_is_stored_as_it_is(name: str) -> None:
    document = campaign_document(
        load_campaign(PROJECT_ROOT / "config" / name), date="2026-11-20", created_utc=""
    )
    assert BLANKED not in to_json(document)


@pytest.mark.parametrize(
    ("engine", "shown"),
    [
        ({"args": {"api_key": ["planted-1"]}}, "engine.args.api_key: ['<redacted>'] is not allowed"),
        ({"env": {"REDIS_PASSWORD": 12345678}}, "engine.env.REDIS_PASSWORD: '<redacted>' is not allowed"),
        ({"extra_args": ["--db-password", {"planted-1": "planted-1"}]}, "engine.extra_args[1]: "),
        ({"args": "redis://u:planted-1@h"}, "engine.args: a text is not allowed; wanted: `object`"),
        ({"model": ["https://u:planted-1@h"]}, "engine.model: ['https://<redacted>@h'] is not allowed"),
    ],
)  # fmt: skip
def test_a_message_about_a_bad_value_does_not_repeat_a_secret(engine: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        campaign(**engine)
    assert shown in str(caught.value)
    assert "12345678" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["a: [\n- planted-1", "password: *planted-1", "password: !planted-1 x", "a: b\n  api_key: 'planted-1"],
)
def test_a_message_about_bad_yaml_names_the_place_and_none_of_the_text(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match="not valid YAML: line ") as caught:
        read_yaml(tmp_path / "a.yaml")
    assert "planted" not in str(caught.value)
