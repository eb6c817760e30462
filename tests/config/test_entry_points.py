"""Builders of installed packages: found by plain name or by module, read only when a name asks for
them."""

import sys
import tomllib

import pytest
from test_own_code import MINE, SMALL

from folkman.config.build import build_problem, pairs
from folkman.config.choices import ConfigError
from folkman.config.comparison import resolve, to_toml
from folkman.config.own_code import digests, parcel
from folkman.radio.delay import constant


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a package with entry points."""

    def install(entries, package="roundabout", source=MINE):
        site = tmp_path / "site"
        facts = site / f"{package}-1.0.dist-info"
        facts.mkdir(parents=True)
        (site / f"{package}.py").write_text(source)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (facts / "entry_points.txt").write_text(entries)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, package, raising=False)

    return install


def test_an_installed_package_is_found_by_plain_name(installed):
    installed(
        "[folkman.algorithm]\nslow_gossip = roundabout:gossip\n[folkman.network]\nslow_gossip "
        "= roundabout:fading\n"
    )
    comparison = resolve(
        {**SMALL, "network": {"name": "slow_gossip"}, "algorithm": [{"name": "slow_gossip"}]}
    )
    ((_, network),) = pairs(comparison, build_problem(comparison, 4), 4)

    assert comparison.algorithm[0] == {
        "name": "slow_gossip", "step": 0.5, "memory": 2, "label": "slow_gossip",
        "network": None, "compression": None}  # fmt: skip
    assert network == constant(2 + 4)
    assert [path.rpartition("/")[2] for path in digests(comparison)] == ["roundabout.py"]
    assert parcel(comparison) == {}
    assert resolve(tomllib.loads(to_toml(comparison))) == comparison
    with pytest.raises(ConfigError, match=r"has no 'slow_gosip'; did you mean 'slow_gossip'\?"):
        resolve({"algorithm": [{"name": "slow_gosip"}]})


def test_a_module_is_named_with_its_function(installed):
    installed("", package="roundtrip")

    assert resolve({"algorithm": [{"name": "roundtrip:gossip"}]}).algorithm[0]["label"] == "gossip"


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        (
            "fedavg = ring:gossip\n",
            r"package 'ring' registers the algorithm 'fedavg', which is built in; rename it",
        ),
        ("hoop = ring:no_such\n", r"ring has no 'no_such'"),
        ("hoop = no_such_ring:gossip\n", r"no_such_ring, which is not installed here"),
    ],
)
def test_an_entry_point_that_shadows_or_leads_nowhere_is_refused(installed, entries, complaint):
    installed(f"[folkman.algorithm]\n{entries}", package="ring")

    with pytest.raises(ConfigError, match=complaint):
        resolve({"algorithm": [{"name": "hoop"}]})


def test_entry_points_are_not_read_for_built_in_names(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: pytest.fail("read"))

    resolve(SMALL)
