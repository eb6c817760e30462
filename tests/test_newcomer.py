"""A newcomer's study: every part of it in a file of one's own, outside the package, through every
command."""

import json
import shutil
import textwrap

import numpy as np
import pyarrow.parquet as pq
import pytest

from folkman.config import plugins
from folkman.config.comparison import resolve
from folkman.config.text import read
from folkman.radio.delay import snapshot
from shell import folkman, undrawn

OWN = {
    "gossip.py": """
        from typing import NamedTuple

        from jax import Array

        import folkman as fm
        from step_rules import halved


        class GossipState(NamedTuple):
            params: Array


        def gossip(step: float = 1.0):
            def update(state, inbox, loss, grad, key):
                mixed = inbox.own_weight * state.params + inbox.mix(inbox.weight)
                return GossipState(mixed - halved(step) * grad)

            return fm.Algorithm(
                name="gossip",
                init=lambda params, place: GossipState(params),
                point=lambda state, inbox: state.params,
                update=update,
                message=lambda state: state.params,
                params=lambda state: state.params,
            )
        """,
    "step_rules.py": """
        def halved(step):
            return step / 2
        """,
    "split.py": """
        import numpy as np


        def shuffled(labels, nodes, *, seed):
            return np.array_split(np.random.default_rng(seed).permutation(len(labels)), nodes)
        """,
    "links.py": """
        import numpy as np

        import folkman as fm


        def unlucky(longest: int = 3, *, seed):
            return fm.snapshot(int(np.random.default_rng(seed).integers(1, longest + 1)))
        """,
    "squashed.py": """
        from dataclasses import dataclass
        from math import prod

        import jax
        import jax.numpy as jnp

        import folkman as fm
        from folkman.problem.models import CROSS_ENTROPY
        from folkman.problem.models import Layout


        @dataclass(frozen=True)
        class Squashed:
            features: int
            classes: int

            @property
            def layout(self):
                return Layout((("kernel", (self.classes, self.features)),))

            def init(self, key):
                return 0.1 * jax.random.normal(key, (self.layout.size,))

            def prepare(self, x):
                return x

            def scores(self, w, x):
                return jnp.tanh(x.reshape(len(x), -1)) @ w.reshape(self.classes, self.features).T


        def squashed(sample, classes):
            return fm.Model(Squashed(prod(sample), classes), CROSS_ENTROPY)
        """,
    "rings.py": """
        import numpy as np

        import folkman as fm


        def rings(samples: int = 60, *, seed):
            rng = np.random.default_rng(seed)
            y = np.arange(samples) % 3
            x = ((y[:, None] + 1) * rng.normal(size=(samples, 4))).astype(np.float32)
            return fm.DataSet("rings", x, y, x[:20], y[:20], 3)
        """,
    "box.py": """
        import jax.numpy as jnp


        def box(side: float = 2.0):
            return lambda w, step: jnp.clip(w, -side, side)
        """,
}
STUDY = """
name = "a study"
nodes = 3
slots = 10
record_every = 5
seeds = [0, 1]

[data]
name = "rings.py:rings"

[partition]
name = "split.py:shuffled"

[model]
name = "squashed.py:squashed"

[network]
name = "links.py:unlucky"

[projection]
name = "box.py:box"

[[algorithm]]
name = "gossip.py:gossip"

[[algorithm]]
name = "async_sharing"
"""


def write_study(place, study=STUDY):
    """Write a study whose files note in `imported` that they were imported."""
    place.mkdir(exist_ok=True)
    mark = f"import pathlib\nif pathlib.Path({str(place)!r}).is_dir():\n"
    mark += f"    pathlib.Path({str(place / 'imported')!r}).touch()\n"
    for name, source in OWN.items():
        (place / name).write_text(mark + textwrap.dedent(source))
    (place / "study.toml").write_text(study)
    return place


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return the folder of a study with a finished run in it."""
    place = write_study(tmp_path_factory.mktemp("newcomer") / "study")
    done = folkman("run", place / "study.toml", "--out", place / "run", cwd=place)
    assert done.returncode == 0, done.stderr
    return place


def rows(path):
    """Return a table as numbers and words that compare equal, NaN too."""
    return [
        {key: str(value) for key, value in row.items()} for row in pq.read_table(path).to_pylist()
    ]


def test_the_run_learns_and_keeps_a_digest_of_every_file(study):
    summary = json.loads((study / "run" / "summary.json").read_text())["runs"]
    own = json.loads((study / "run" / "provenance.json").read_text())["own_code"]

    assert [(run["label"], run["seed"]) for run in summary] == [
        ("gossip", 0), ("async_sharing", 0), ("gossip", 1), ("async_sharing", 1)]  # fmt: skip
    for run in summary:
        first = next(
            r for r in rows(study / "run" / "metrics.parquet") if r["label"] == run["label"]
        )
        assert run["train_loss"] < float(first["train_loss"])
    assert set(own) == {str(study / name) for name in OWN}
    assert all(len(digest) == 64 for digest in own.values())


def test_report_and_dash_do_not_run_own_code(study):
    from folkman.dash.serve import make_source

    (study / "imported").unlink()
    (study / "run" / "report.html").unlink()

    assert folkman("report", study / "run", cwd=study).returncode == 0
    make_source(study / "run", cluster=False).state()

    assert "gossip" in (study / "run" / "report.html").read_text()
    assert not (study / "imported").exists()


def test_a_resumed_run_has_the_bits_of_an_undisturbed_one(study, tmp_path):
    place = tmp_path / "run"
    shutil.copytree(study / "run", place)
    (place / "parts" / "gossip-seed1.parquet").unlink()

    with undrawn():
        assert folkman("run", "--resume", place, cwd=tmp_path).returncode == 0

    assert rows(place / "metrics.parquet") == rows(study / "run" / "metrics.parquet")


@pytest.mark.parametrize("changed", ["gossip.py", "step_rules.py", "split.py"])
def test_a_resume_after_a_file_has_changed_is_refused(tmp_path, study, changed):
    """Without a traceback and before the new code is run; the folder stays as it was."""
    place = tmp_path / "study"
    shutil.copytree(study, place)
    facts = (place / "run" / "provenance.json").read_text().replace(str(study), str(place))
    (place / "run" / "provenance.json").write_text(facts)
    with (place / changed).open("a") as file:
        file.write("# changed\n")

    done = folkman("run", "--resume", place / "run", cwd=tmp_path)

    assert done.returncode == 2
    said = done.stderr
    before = json.loads(facts)["own_code"][str(place / changed)]
    assert f"error: {place / changed} has changed since" in said
    assert before[:12] in said
    assert "restore the file, or run into a new folder" in said
    assert (place / "run" / "provenance.json").read_text() == facts


ONE = STUDY.replace("seeds = [0, 1]", "seeds = [1]")
SWEPT = ONE.replace(
    '[[algorithm]]\nname = "async_sharing"\n', "[grid]\nalgorithm.0.step = [0.5, 1.0]\n"
)


@pytest.fixture(scope="module")
def swept(study):
    """Return a sweep of the study by a worker process."""
    (study / "sweep.toml").write_text(SWEPT)
    command = ["sweep", study / "sweep.toml", "--workers", "1", "--out", study / "sweep"]
    done = folkman(*command, cwd=study)
    assert done.returncode == 0, done.stderr
    return study / "sweep"


@pytest.mark.process
@pytest.mark.slow
def test_a_sweep_in_processes_gives_the_numbers_of_the_run(study, swept):
    index = json.loads((swept / "index.json").read_text())
    ours = [
        row
        for row in rows(study / "run" / "metrics.parquet")
        if (row["label"], row["seed"]) == ("gossip", "1")
    ]
    theirs = [row for row in rows(swept / "results.parquet") if row["algorithm.0.step"] == "1.0"]

    assert [job["state"] for job in index["jobs"]] == ["finished"] * 2
    assert {job["arm"] for job in index["jobs"]} == {"gossip, step=0.5", "gossip, step=1"}
    assert set(index["own_code"]) == {str(study / name) for name in OWN}
    losses = [[float(row["train_loss"]) for row in each] for each in (ours, theirs)]
    assert len(losses[0]) == 3
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.process
@pytest.mark.slow
def test_a_sweep_is_not_gone_on_with_after_a_file_has_changed(study, swept):
    source = (study / "links.py").read_text()
    (study / "links.py").write_text(f"{source}# changed\n")
    try:
        done = folkman("sweep", "--resume", swept, "--workers", "1", cwd=study)
    finally:
        (study / "links.py").write_text(source)

    assert done.returncode == 2
    assert f"{study / 'links.py'} has changed since" in done.stderr


def test_a_worker_that_does_not_see_the_files_is_sent_them(tmp_path, monkeypatch):
    """As on another host: neither the store nor the study is there, and the numbers are the
    same."""
    from folkman.experiment.jobs import order_for, run_anywhere
    from folkman.experiment.plan import axes_of, plan
    from folkman.record.store import Store, SweepFolder

    place = write_study(tmp_path / "study", SWEPT)
    raw = read(place / "study.toml")
    jobs = plan(raw, axes_of(raw)).jobs
    folder, store = (
        SweepFolder.create(tmp_path / "sweep", "", None),
        Store(tmp_path / "sweep" / "jobs"),
    )
    orders = [json.loads(json.dumps(order_for(job, folder, store, "study", ()))) for job in jobs]
    shutil.rmtree(place)
    shutil.rmtree(tmp_path / "sweep")
    monkeypatch.setattr(plugins, "_SOURCES", {})  # as in a process that never saw them

    told = run_anywhere(orders[0])

    assert told["state"] == "finished", told["message"]
    assert {"metrics.parquet", "config.toml", "provenance.json"} <= set(told["files"])
    assert str(place / "gossip.py") in json.loads(told["files"]["provenance.json"])["own_code"]


def test_a_cluster_has_its_own_copy_of_the_files(tmp_path):
    """It can be moved to a board: the same task, whatever the path, and the same algorithm for the
    task's seed."""
    from folkman.runtime.assembly import build, load_shard, read_task, task_of
    from folkman.runtime.cluster import make_cluster

    place = write_study(tmp_path / "study")
    task = task_of(resolve(read(place / "study.toml")), "gossip", 1)
    make_cluster(tmp_path / "cluster", task, {"insecure": True, "transport": "tcp"})
    shutil.rmtree(place)
    (tmp_path / "cluster").rename(tmp_path / "board")

    there = read_task(tmp_path / "board" / "config.toml", "gossip", 1)
    algorithm, network = build(
        there,
        load_shard(tmp_path / "board" / "nodes" / "node-0" / "shard.npz", there.comparison, 1),
    )

    assert (there.run, there.fingerprint) == (task.run, task.fingerprint)
    assert algorithm.name == "gossip"
    assert network == snapshot(int(np.random.default_rng(1).integers(1, 4)))
