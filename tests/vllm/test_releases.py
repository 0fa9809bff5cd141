"""Step timing, the no-op connector and the virtual GPU on the files of real releases: far apart, and the newest there is."""

from functools import cache

import pytest

from connector_tax.run.engine.releases import Fit, available, fit

pytestmark = pytest.mark.vllm
FAR_APART = ("0.11.0", "0.16.0", "0.22.1", "0.32.0")
# The virtual GPU's: the oldest, the first that starts loads after the forward, and the one that it is tested on.
VIRTUAL_GPU = {"0.27.0": "V2; V1 for most mixtures of experts", "0.29.0": "V2", "0.32.0": "V2"}


@pytest.fixture(scope="module")
def releases() -> dict[str, str]:
    return {version: package for package, version in available()}


@cache
def fitted(package: str, version: str) -> Fit:
    """A release is downloaded once."""
    return fit(package, version)


@pytest.mark.parametrize("version", FAR_APART)
def test_old_and_new_releases_take_both(releases: dict[str, str], version: str) -> None:
    found = fitted(releases[version], version)
    assert found.ok, found


@pytest.mark.parametrize("version", VIRTUAL_GPU)
def test_the_virtual_gpu_calls_hooks_where_the_releases_own_runners_do(
    releases: dict[str, str], version: str
) -> None:
    found = fitted(releases[version], version)
    assert (found.hook_order, found.default_runner) == ("fits", VIRTUAL_GPU[version])


def test_the_newest_release_takes_both(releases: dict[str, str]) -> None:
    version = list(releases)[-1]
    if version in FAR_APART:
        pytest.skip(f"{version} is the newest and was tried above")
    found = fitted(releases[version], version)
    assert found.ok, found
    assert found.hook_order == "fits"
