"""The commands of the documentation run, page by page from top to bottom; what cannot is in one
table, with reasons."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from contextlib import nullcontext

import numpy as np
import pytest

from shell import folkman, python, undrawn
from test_docs import PAGES, ROOT, blocks, write_files

HOURS = (
    "takes hours; what it does is tested in "
    "tests/benchmark/test_runs.py::test_a_measured_row_has_every_figure"
)
GPU = "needs a GPU, MNIST, and hours"
HOSTS = (
    "needs other hosts; run in tests/experiment/test_sweep_dask.py"
    "::test_three_hosts_over_mutual_tls_give_the_same_table_and_refuse_a_rogue_worker"
)
SMOKE = (
    "takes minutes; run in "
    "tests/papers/test_reproduce.py::test_the_smoke_size_runs_is_judged_and_redrawn"
)
PARSED_ONLY = {
    "pip install": "needs a package registry; `make test` installs what is tested",
    "make bench": HOURS,
    "python -m benchmarks": HOURS,
    "dask scheduler": HOSTS,
    "dask worker": HOSTS,
    "folkman sweep sweep.toml": HOSTS,
    "srun": "needs Slurm",
    "folkman data fetch": (
        "downloads; run in tests/problem/test_fetch.py::test_canonical_archives_come_over_http"
    ),
    "folkman run watch.toml": "needs what was fetched, and a minute; run in "
    "tests/problem/test_smartwatch.py::test_a_configuration_learns_with_one_node_for_each_person",
    "folkman dash runs/first --host 0.0.0.0": "listens beyond this machine; the token is tested in "
    "tests/dash/test_app.py::test_the_token_is_traded_for_a_cookie_and_leaves_the_address",
    "folkman theory gap --model worst --plot": "takes half a minute; run in "
    "tests/cli/test_cli_theory.py::test_gap_prints_rows_and_draws_a_figure",
    "folkman demo": (
        "takes half a minute; run in "
        "tests/test_examples.py::test_the_demo_prints_the_table_that_the_readme_shows"
    ),
    "python -m benchmarks.comparison": "takes hours, and is of the repository, not of the package",
    "python benchmarks/laws.py": "takes minutes, and is of the repository, not of the package",
    "python benchmarks/cells_on_workers.py": "takes minutes, and is of the repository",
    "python benchmarks/pictures.py": "needs a browser, and the demo",
    "folkman reproduce all --size smoke": SMOKE,
    "folkman reproduce all --check": "needs MNIST; run in tests/papers/test_reproduce.py"
    "::test_three_kept_runs_of_the_laptop_size_are_made_again",
    "folkman reproduce all --size laptop": "needs MNIST and half an hour",
    "folkman reproduce all --size full --device": GPU,
    "folkman audit runs/paper-full": (
        "needs what a GPU made; the audit of what is kept under docs/ runs"
    ),
}
"""Commands that begin so are parsed and not run, and why."""

SHOWN = {
    "devices.md": "needs two machines; run in tests/runtime/test_enrolment.py"
    "::test_the_commands_ask_sign_and_refuse",
    "fleet.md": "needs boards; its commands run in tests/runtime/test_fleet_commands.py"
    "::test_real_nodes_are_seen_collected_replayed_and_stopped",
    "fresh-air-theory.md": HOURS,
    "fresh-air.md": "takes minutes; run in tests/runtime/test_fresh_cluster.py"
    "::test_processes_on_the_emulated_radio_have_the_simulators_ages_and_parameters",
    "network-momentum.md": GPU,
    "own-part.md": GPU,
    "ranking.md": "takes minutes, and shows what came out; the commands of the page run",
    "start-a-project.md": "changes the shell; run in tests/cli/test_completion.py"
    "::test_the_script_is_installed_for_every_new_shell",
    "tutorials/own-devices.md": "needs two boards; run line by line in "
    "tests/runtime/test_board_recipe.py::test_a_board_has_all_that_it_needs_and_nothing_of_another",
    "tutorials/own-traces.md": "needs the traces of others, which are a pickle",
    "world.md": "takes hours, and is of the repository",
}
"""Pages whose blocks of text show commands that no test of this file runs, and why.

That the commands and their options are there is tested in `test_docs.py`.
"""

FEW = "--set slots=20 --set 'seeds=[0]'"
ONE = """--set 'algorithm=[{name="async_sharing"}]'"""
ADDED = {
    "folkman run": FEW,
    "folkman sweep --grid": f"{FEW} {ONE} --set data.train_size=60 --set model.name=softmax"
    " --engine here",
    "folkman tune": "--set slots=6 --set data.train_size=60 --seeds 1000 --engine here",
    "folkman rank": "--set slots=6 --set data.train_size=60 --over step=0.1,1 --seeds 1000"
    " --judged 1,2 --engine here",
    "folkman radio": "--drops 2 --slots 12",
    "folkman up": "--set slots=6",
    "folkman dash": "--port 0",
}
"""What is put behind commands that begin so: shorter runs, no processes, free ports."""

SERVERS = ("folkman dash",)
DRAWN = ("looking.md",)
"""Pages about reports and figures. Elsewhere figures stay empty: they are most of a command's time,
and tests/report draws them."""


def commands(page):
    """Return the commands of a page's shell blocks, a line each, without comments."""
    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    bare = [re.sub(r"(^|\s+)#.*$", "", line).strip() for line in lines]
    return [line for line in bare if line]


def found(line, table):
    """Return the longest entry of a table that a command begins with, or None."""
    return max((prefix for prefix in table if line.startswith(prefix)), key=len, default=None)


HAVING = [
    page for page in PAGES if any(found(line, PARSED_ONLY) is None for line in commands(page))
]
STARTS = (
    "folkman up",
    "folkman dash",
    "folkman report sweeps/gammas --jobs",
    "folkman simulate-node",
    "folkman world",
)
"""Commands that begin so start processes."""


def told(page):
    """Return a page as a parameter: its name, and whether its commands start processes."""
    starts = any(line.startswith(STARTS) for line in commands(page))
    marks = [pytest.mark.process] if starts else []
    return pytest.param(page, id=str(page.relative_to(ROOT / "docs")), marks=marks)


APART = ("folkman simulate-node", "folkman world")
"""Commands that compute with NumPy, which this process does not."""


def is_plain(line):
    """Tell whether a line is one command, without what only a shell knows: variables, pipes."""
    words = shlex.split(line)
    known = words[0] in ("folkman", "python") and not line.startswith(APART)
    return known and not re.search(r"[|&;<>$`*?~]", line)


def run(line, folder):
    """Run a command that must succeed: in this process if it is plain, else by a shell."""
    if is_plain(line):
        name, *words = shlex.split(line)
        done = {"folkman": folkman, "python": python}[name](*words, cwd=folder)
    else:
        command = ["bash", "-euo", "pipefail", "-c", line]
        if line.startswith(APART):
            command = [sys.executable, "-m", *shlex.split(line)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (line, done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Return a folder with what pages take from one another: the run of the first page, data, a
    sweep, a cluster."""
    place = tmp_path_factory.mktemp("before")
    run(
        f"folkman run {FEW} --set data.train_size=60 --set model.name=softmax --out runs/first",
        place,
    )
    short = ADDED["folkman sweep --grid"]
    run(f"folkman sweep --grid network.gamma=2,3 {short} --out sweeps/gammas", place)
    for name in "ab":
        shutil.copytree(place / "runs" / "first", place / "runs" / name)
    rng = np.random.default_rng(0)
    np.savez(
        place / "mine.npz",
        x_train=rng.normal(size=(60, 4)).astype(np.float32),
        y_train=rng.integers(0, 3, 60),
    )
    np.savez(
        place / "machines.npz",
        x_train=rng.normal(size=(18, 50, 3)).astype(np.float32),
        y_train=rng.integers(0, 2, 18),
        group=np.repeat(np.arange(3), 6),
    )
    rows = np.column_stack([rng.normal(size=(60, 2)), rng.integers(0, 3, 60)])
    np.savetxt(place / "mine.csv", rows, "%.6g", ",", header="a,b,kind", comments="")
    rows = [f"{at},1,{at % 7},2,{'ab'[at // 300]}c,{at // 50 % 2}" for at in range(600)]
    rows += [row.replace("ac", "cc") for row in rows[:300]]
    (place / "recorded.csv").write_text("\n".join(["time,x,y,z,machine,state", *rows]))
    own = {"x": ["to be or"] * 10, "y": ["n"] * 10}
    leaf = {"users": ["A", "B"], "num_samples": [10, 10], "user_data": {"A": own, "B": own}}
    (place / "lines.json").write_text(json.dumps(leaf))
    pairs = [(tx, rx) for tx in range(4) for rx in range(4) if tx != rx]
    rows = "".join(f"0,{tx},{rx},15\n" for tx, rx in pairs)
    (place / "links.csv").write_text(f"time_s,tx,rx,snr_db\n{rows}")
    able = "".join(f"{client},{20 + client},1000\n" for client in range(3))
    (place / "capacity.csv").write_text(f"client,computation,communication\n{able}")
    there = "".join(f"{client},0,{client + 3}\n" for client in range(3))
    (place / "there.csv").write_text(f"client,active_s,inactive_s\n{there}")
    (place / "mine.toml").write_text(
        'nodes = 2\n[[algorithm]]\nname = "async_sharing"\nstep = 0.2\n'
    )
    home = place / "runs" / "cluster" / "nodes" / "node-0"
    home.mkdir(parents=True)
    (home / "health.json").write_text(json.dumps({"node": "node-0", "state": "learning"}))
    return place


TAKEN = {
    "guide.md": ("runs/first", "runs/a", "runs/b", "mine.npz"),
    "devices.md": ("mine.toml",),
    "fleet.md": ("mine.toml",),
    "tutorials/own-data.md": (
        *("mine.npz", "machines.npz", "mine.csv", "recorded.csv", "lines.json"),
    ),
    "tutorials/own-radio.md": ("links.csv",),
    "tutorials/own-traces.md": ("capacity.csv", "there.csv"),
    "looking.md": ("runs/first", "sweeps/gammas", "runs/cluster"),
}
"""What must be there before a page's first command, because the page says so or another page makes
it."""


def visit_and_end(line, folder):
    """Start a server as a process, ask it for its page once it says where it is, press Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-m", *shlex.split(line)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = []
    for printed in process.stdout:
        said.append(printed)
        if address := re.match(r"open\s+(http://\S+)", printed):
            with urllib.request.urlopen(address[1], timeout=30) as answer:  # noqa: S310 - http
                assert answer.status == 200
            process.send_signal(signal.SIGINT)
            break
    said.append(process.communicate(timeout=30)[0])
    assert process.returncode == 0, said
    assert len(said) > 1, said


@pytest.mark.slow
@pytest.mark.parametrize("page", [told(page) for page in HAVING])
def test_commands_run_from_top_to_bottom(page, before, tmp_path):
    for name in TAKEN.get(str(page.relative_to(ROOT / "docs")), ()):
        there = before / name
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if there.is_dir() else shutil.copy)(there, tmp_path / name)
    for name in ("docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    write_files(page, tmp_path)

    with nullcontext() if page.name in DRAWN else undrawn():
        for line in commands(page):
            if found(line, PARSED_ONLY) is not None:
                continue
            extra = found(line, ADDED)
            act = visit_and_end if line.startswith(SERVERS) else run
            act(line if extra is None else f"{line} {ADDED[extra]}", tmp_path)


def test_the_tables_hold_nothing_that_no_page_has():
    every = [line for page in PAGES for line in commands(page)]

    assert set(PARSED_ONLY) == {found(line, PARSED_ONLY) for line in every} - {None}
    run = [line for line in every if found(line, PARSED_ONLY) is None]
    assert set(ADDED) == {found(line, ADDED) for line in run} - {None}
    for start in STARTS:
        assert any(line.startswith(start) for line in run)
    assert set(DRAWN) <= {page.name for page in HAVING}
    assert set(TAKEN) <= {str(page.relative_to(ROOT / "docs")) for page in HAVING}


def test_commands_that_are_shown_and_not_run_have_a_reason():
    starts = re.compile(r"^(?:folkman|python|make|pip|docker|sudo|dask|srun) ", re.MULTILINE)
    showing = {
        str(page.relative_to(ROOT / "docs"))
        for page in PAGES
        if any(starts.search(block) for block in blocks(page, "text"))
    }
    assert showing == set(SHOWN)


def test_a_reason_that_names_a_test_names_one_that_is_there():
    for reason in [*PARSED_ONLY.values(), *SHOWN.values()]:
        for path, name in re.findall(r"(tests/\S+\.py)::(\w+)", reason):
            assert f"def {name}(" in (ROOT / path).read_text(), reason


def test_every_block_is_a_shells():
    for page in PAGES:
        for source in blocks(page, "sh"):
            done = subprocess.run(
                ["bash", "-n"], input=source, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (page, done.stderr)
