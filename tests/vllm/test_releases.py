"""Step timing and the no-op connector on the files of real releases: far apart, and the newest there is."""

import pytest

from connector_tax.engine.releases import available, fit

pytestmark = pytest.mark.vllm
FAR_APART = ("0.11.0", "0.16.0", "0.22.1", "0.32.0")


@pytest.fixture(scope="module")
def releases() -> dict[str, str]:
    return {version: package for package, version in available()}


@pytest.mark.parametrize("version", FAR_APART)
def test_old_and_new_releases_take_both(releases: dict[str, str], version: str) -> None:
    found = fit(releases[version], version)
    assert found.ok, found


def test_the_newest_release_takes_both(releases: dict[str, str]) -> None:
    version = list(releases)[-1]
    if version in FAR_APART:
        pytest.skip(f"{version} is the newest and was tried above")
    found = fit(releases[version], version)
    assert found.ok, found
