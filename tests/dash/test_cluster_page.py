"""The page of a real cluster in a real browser, while one of its processes is killed by number."""

import json
import os
import signal

import pytest

from conftest import CONTRASTS
from folkman.dash.serve import make_source
from tests.shell import folkman

CONFIG = """
nodes = 3
slots = 100000
slot_s = 0.1
seeds = [0]
record_every = 60
data.name = "digits"
data.train_size = 90
model.name = "softmax"
network = { name = "snapshot", gamma = 4 }

[[algorithm]]
name = "async_sharing"
step = 0.5
"""
OPTIONS = ["--transport", "tcp", "--radio", "measured", "--insecure", "--node-set", "steps=0"]


def expect(locator):
    from playwright.sync_api import expect as wait

    wait.set_options(timeout=180_000)  # three processes start on a busy machine
    return wait(locator)


@pytest.mark.process
@pytest.mark.slow
def test_a_killed_node_is_red_and_the_faults_name_it(serving, visit, tmp_path):
    """One cluster, looked at by a page in light colours and by one in dark."""
    (tmp_path / "config.toml").write_text(CONFIG)
    begun = folkman("up", "config.toml", "--out", "cluster", *OPTIONS, cwd=tmp_path)
    assert begun.returncode == 0, begun.stderr
    try:
        address = serving(make_source(tmp_path / "cluster", cluster=True))
        pages = [visit(address, color_scheme=scheme) for scheme in ("light", "dark")]
        for page in pages:
            nodes = page.get_by_role("region", name="Nodes")
            expect(page.locator("#status")).to_have_text("3 of 3 nodes well")
            expect(nodes.locator("tbody tr", has_text="learning")).to_have_count(3)
            expect(nodes.locator("tr.bad")).to_have_count(0)
            expect(page.locator("svg.map .link[stroke-dasharray]")).to_have_count(0)

        told = folkman("status", "cluster", "--json", cwd=tmp_path)
        os.kill(json.loads(told.stdout)["nodes"][2]["pid"], signal.SIGKILL)

        for page in pages:
            names_the_third(page)
    finally:
        folkman("down", "cluster", cwd=tmp_path)


def names_the_third(page):
    """See that the third node is gone, in words and in a red that can be read."""
    nodes = page.get_by_role("region", name="Nodes")
    faults = page.get_by_role("region", name="Faults")
    expect(nodes.locator("tr.bad")).to_have_count(1)
    expect(nodes.locator("tr.bad")).to_contain_text("node-2")
    expect(faults).to_contain_text("gone: its process has ended without a word")
    expect(faults.locator("tbody tr", has_text="gone: ")).to_have_count(1)
    expect(faults.locator("tbody tr", has_text="gone: ")).to_contain_text("node-2")
    expect(page.locator(".wrong")).to_contain_text("node-2 is gone")
    red, plain, bad = page.evaluate(
        """() => ["tr.bad td", "tr:not(.bad) td"].map((name) => document.querySelector(name))
            .map((cell) => getComputedStyle(cell).color)
            .concat(getComputedStyle(document.documentElement).getPropertyValue("--bad"))"""
    )
    assert red != plain
    assert red == f"rgb{tuple(int(bad[at : at + 2], 16) for at in (1, 3, 5))}"
    ratio, *where = page.evaluate(CONTRASTS)[0]
    assert ratio >= 4.5, where
