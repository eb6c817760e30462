"""A paper of one's own: TOML alone, reproduced and audited by generic code that names no method,
data set or figure."""

import ast
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import folkman
from folkman.algorithm import ALGORITHMS
from folkman.cli import app
from folkman.dash.sweep import SweepSource
from folkman.papers.paper import find
from folkman.problem.data import BUILDERS
from folkman.problem.partition import PARTITIONS
from folkman.record.store import SweepFolder
from folkman.report.write import write_report
from shell import undrawn

DEMO = Path(__file__).parents[2] / "examples" / "papers" / "digits-demo"
SOURCE = Path(folkman.__file__).parent


def call(*arguments):
    """Run a command in this process; return its last line of JSON."""
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Reproduce the made-up paper once."""
    root = tmp_path_factory.mktemp("demo") / "runs"
    answer = call("reproduce", "all", "--paper", DEMO, "--out", root)
    assert (answer["size"], answer["made"], answer["missing"]) == ("quick", 26, 0)
    return root


def test_two_of_its_six_claims_are_false_and_one_is_open(made):
    judged = {claim["name"]: claim["verdict"] for claim in call("audit", made)["claims"]}

    holds = dict.fromkeys(("D.1", "D.3", "L.2"), "holds")
    assert judged == {
        **holds,
        "D.2": "contradicted",
        "L.1": "contradicted",
        "L.3": "open",
    }


def test_a_second_call_runs_nothing_and_draws_again(made):
    answer = call("reproduce", "delay", "--paper", DEMO, "--out", made)

    assert (answer["made"], answer["missing"]) == (0, 0)
    names = {path.name for path in (made / "figures").iterdir()}
    assert {
        f"{figure}-digits-{axis}.png"
        for figure in ("delay", "labels")
        for axis in ("gradients", "bits")
    } <= names
    again = call("audit", made)["claims"]
    assert (
        len([claim for claim in again if claim["readings"][0]["n"]]) == 6
    )  # the other figure's runs are kept


def test_its_report_is_written_if_asked_for_else_the_command_is_named(made):
    page = SweepFolder(made).report
    page.unlink(missing_ok=True)
    command = ["reproduce", "delay", "--paper", str(DEMO), "--out", str(made)]

    plain = CliRunner().invoke(app, command)
    assert f"all runs on one page: folkman report {made}" in plain.stderr
    assert not page.exists()

    asked = CliRunner().invoke(app, [*command, "--report"])
    assert f"report  {page}" in asked.stdout
    assert "26 jobs: 26 finished" in page.read_text()


def test_a_reproduction_has_a_report_a_live_page_and_arms_to_compare(made):
    page = write_report(made).read_text()
    assert "async_sharing" in page
    assert "26 jobs: 26 finished" in page
    state = SweepSource(made).state()
    assert (state["state"], len(state["jobs"])) == ("finished", 26)
    assert len(call("compare", made)["rows"]) == 14  # seven arms by two metrics


def copied(tmp_path, name, old, new):
    """Return a copy of the made-up paper with one change."""
    folder = tmp_path / "paper"
    shutil.copytree(DEMO, folder)
    text = (folder / name).read_text()
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1))
    return folder


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "paper.toml",
            "figures =",
            "figurs =",
            r"paper.toml: unknown key 'figurs'; did you mean 'figures'",
        ),
        (
            "delay.toml",
            "rank = 1",
            "rnak = 1",
            r"delay.toml, \[\[arm\]\]: unknown key 'rnak'; did you mean 'rank'",
        ),
        (
            "claims.toml",
            "where =",
            "were =",
            r"claim D.1: unknown key 'were'; did you mean 'where'",
        ),
        (
            "claims.toml",
            'figure = "delay"',
            'figure = "dealy"',
            r"there is no figure 'dealy'; did you mean 'delay'",
        ),
        (
            "claims.toml",
            "gamma =",
            "gama =",
            r"claim D.1, ours: unknown key 'gama'; did you mean 'gamma'",
        ),
        (
            "delay.toml",
            'partition = "iid"',
            "parition = 1",
            r"a curve: unknown key 'parition'; did you mean",
        ),
        ("paper.toml", '"labels"]', '"lables"]', r"expected lables.toml in .*, there is none"),
        ("delay.toml", '"@gammas"', '"@gamas"', r"there is no 'gamas'; did you mean 'gammas'"),
        (
            "sizes.toml",
            "step =",
            "stop =",
            r"\[quick.variant.digits\]: unknown key 'stop'; did you mean 'step'",
        ),
        (
            "sizes.toml",
            "step = 0.2",
            "",
            r"\[quick.variant.digits\]: 'step' is needed and was not given",
        ),
        ("claims.toml", '"lower"', '"loewr"', r"there is no test 'loewr'; did you mean 'lower'"),
        ("sizes.toml", "[quick]", "[quick", r"expected TOML in"),
        ("sizes.toml", "draws = 4", "", r"there is no 'draws'"),
        (
            "paper.toml",
            'figures = ["delay", "labels"]',
            'figures = "delay"',
            r"'figures' must be of type list, got 'delay'",
        ),
        (
            "paper.toml",
            'network = ["gamma"]',
            "network = 3",
            r"\[facts\]: 'network' must be of type list",
        ),
        (
            "delay.toml",
            "rank = 1",
            'rank = "a"',
            r"\[\[arm\]\]: 'rank' must be of type int, got 'a'",
        ),
        ("delay.toml", 'nodes = "@nodes"', "", r"\[\[arm\]\]: 'nodes' is needed"),
        (
            "delay.toml",
            '{ name = "async_sharing" }',
            "{}",
            r"\[\[arm\]\], algorithm: 'name' is needed",
        ),
        ("delay.toml", "{gamma} slots", "{gama} slots", r"the label .* cannot be filled in"),
        ("claims.toml", 'figure = "delay"', "", r"claim D.1: 'figure' is needed"),
        (
            "claims.toml",
            "ours = {",
            "our = {",
            r"claim D.1: unknown key 'our'; did you mean 'ours'",
        ),
        ("claims.toml", 'test = "lower"', 'test = "ordered"', r"claim D.1: 'levels' is needed"),
        ("claims.toml", 'test = "lower"', 'test = "formula"', r"claim D.1: 'formula' is needed"),
        (
            "claims.toml",
            'test = "lower"',
            'test = "lower"\nvariant = "digitz"',
            r"no variant 'digitz'; did you mean",
        ),
        ("claims.toml", 'test = "lower"', 'test = "lower"\nreadings = "all"', r"there is no 'all'"),
    ],
)
def test_a_paper_that_is_wrong_is_told_where(tmp_path, made, name, old, new, message):
    paper = copied(tmp_path, name, old, new)
    commands = [["reproduce", "all", "--paper", paper, "--plan"], ["audit", made, "--paper", paper]]
    commands += [
        ["reproduce", "all", "--paper", paper, "--redraw", made, "--out", tmp_path / "drawn"]
    ]

    with undrawn():
        ends = [CliRunner().invoke(app, list(map(str, command))) for command in commands]
    told = [str(end.exception) for end in ends]

    assert any(re.search(message, text) for text in told), told


def test_of_every_run_it_is_known_with_what_it_was_made(made):
    index = json.loads((made / "index.json").read_text())
    known = json.loads((made / "provenance.json").read_text())

    assert known["runs"].keys() == {job["key"] for job in index["jobs"]}
    number, started = known["runs"][index["jobs"][0]["key"]]
    facts = known["made"][number]
    assert {"commit", "versions", "xla_flags", "devices", "platform"} <= facts.keys()
    assert ("diff_sha256" in facts) == str(facts["commit"]).endswith("-dirty")
    assert started.startswith("20")


def test_kept_runs_are_made_again_and_one_that_was_touched_is_found(made, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    for name in ("index.json", "sweep.toml", "results.parquet"):
        shutil.copy(made / name, kept)

    same = call("reproduce", "all", "--paper", DEMO, "--check", kept, "--sample", 1)

    assert [(run["median"], run["agrees"]) for run in same["runs"]] == [(0.0, True)]
    table = pq.read_table(kept / "results.parquet")
    at = table.column_names.index("train_loss")
    raised = pa.array(1.003 * table["train_loss"].to_numpy())
    pq.write_table(table.set_column(at, "train_loss", raised), kept / "results.parquet")
    command = ["reproduce", "all", "--paper", str(DEMO), "--check", str(kept), "--sample", "1"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 5  # a job failed
    assert "DIFFERS" in told.output


def test_a_budget_of_nothing_makes_nothing_and_can_be_judged(tmp_path):
    answer = call("reproduce", "delay", "--paper", DEMO, "--budget-s", "0", "--out", tmp_path)

    assert (answer["made"], answer["missing"]) == (0, 16 + 4)
    assert "of the budget of 0 s" in answer["stopped"]
    assert {claim["verdict"] for claim in call("audit", tmp_path)["claims"]} == {"not run"}


def test_runs_of_another_length_go_into_a_folder_of_their_own(made):
    longer = CliRunner().invoke(
        app, ["reproduce", "all", "--paper", str(DEMO), "--iterations", "99", "--out", str(made)]
    )

    assert re.search(r"holds another sweep; choose another --out$", str(longer.exception))
    resumed = CliRunner().invoke(app, ["sweep", "--resume", str(made)])
    assert f"go on with: folkman reproduce all --paper {DEMO} --size quick --out {made}" in str(
        resumed.exception
    )


def test_the_code_of_a_paper_is_run_checked_and_remembered(tmp_path):
    """A fact of the paper's own chooses runs; a change of the code is refused, an error in it says
    where."""
    paper = copied(
        tmp_path,
        "paper.toml",
        'figures = ["delay", "labels"]',
        'figures = ["labels"]\ncode = "own.py"',
    )
    (paper / "delay.toml").unlink()
    claims = (paper / "claims.toml").read_text()
    (paper / "claims.toml").write_text(
        claims[claims.index('[[claim]]\nname = "L.3"') :].replace("factor = 0.5", "slow = true")
    )
    code = (
        'FACTS = ("slow",)\ndef facts(known, comparison):\n'
        '    return {"slow": known["factor"] < 1}\n'
    )
    (paper / "own.py").write_text(code)
    command = [
        "reproduce",
        "all",
        "--paper",
        str(paper),
        "--seeds",
        "1",
        "--out",
        str(tmp_path / "runs"),
    ]

    assert call(*command)["missing"] == 0
    assert call("audit", tmp_path / "runs")["claims"][0]["readings"][0]["n"] == 1
    (paper / "own.py").write_text(f"{code}# changed\n")
    assert "own.py has changed since this was begun" in str(
        CliRunner().invoke(app, command).exception
    )
    (paper / "own.py").write_text(code.replace('known["factor"]', 'known["no"]'))
    told = str(CliRunner().invoke(app, command).exception)
    assert re.search(r"facts of the paper's code raised KeyError: 'no' \(.*own.py, line 3\)", told)


@pytest.mark.process
def test_two_processes_do_not_reproduce_into_one_folder(tmp_path):
    folder = SweepFolder.create(tmp_path, 'paper = "x"\nsize = "quick"\n')
    with folder.held():
        program = (
            "import pathlib, sys; from folkman.record.store import SweepFolder\n"
            "with SweepFolder(pathlib.Path(sys.argv[1])).held(shared=sys.argv[2] == 'shared'): pass"
        )
        command = [sys.executable, "-c", program, str(tmp_path)]
        for how in ("alone", "shared"):
            other = subprocess.run([*command, how], capture_output=True, text=True, check=False)
            assert re.search(r"is in use by process \d+ on .*; wait for it", other.stderr)
    with folder.held(shared=True):
        assert subprocess.run([*command, "shared"], check=False).returncode == 0
        refused = CliRunner().invoke(
            app, ["reproduce", "all", "--paper", str(DEMO), "--out", str(tmp_path)]
        )
        assert "holds another sweep" in str(refused.exception)


@pytest.mark.process
def test_a_second_reproduction_is_refused_while_the_first_runs(tmp_path):
    """Two real commands at once: the second ends at once with exit code 2, the first goes on."""
    root = tmp_path / "runs"
    command = [
        sys.executable,
        "-m",
        "folkman",
        "reproduce",
        "labels",
        "--paper",
        str(DEMO),
        "--out",
        str(root),
    ]
    with (tmp_path / "first.log").open("w") as log:
        first = subprocess.Popen(command, stderr=log, stdout=log)
    try:
        end_s = time.monotonic() + 60
        while not (root / "index.json").is_file() and time.monotonic() < end_s:
            time.sleep(0.05)
        first.send_signal(signal.SIGSTOP)  # it must not end before the second has begun
        second = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        first.send_signal(signal.SIGCONT)
        code = first.wait(180)

    assert (code, second.returncode) == (0, 2), (tmp_path / "first.log").read_text()
    assert re.search(rf"error: .*runs is in use by process {first.pid} on", second.stderr)


@pytest.mark.process
def test_shares_fill_one_folder_and_every_engine_gives_the_same_numbers(tmp_path, made):
    """Three shares on three engines: together they are the whole, to the last digits of the
    float32."""
    for number, engine in (("1/3", "here"), ("2/3", "processes"), ("3/3", "dask")):
        extra = ["--engine", engine, "--workers", "1", "--share", number]
        call("reproduce", "labels", "--paper", DEMO, "--out", tmp_path, *extra)

    both = {claim["name"]: claim["readings"][0] for claim in call("audit", tmp_path)["claims"]}
    whole = {claim["name"]: claim["readings"][0] for claim in call("audit", made)["claims"]}
    assert both["L.1"]["mean"] == pytest.approx(whole["L.1"]["mean"], rel=1e-4)
    assert (both["L.1"]["n"], both["D.1"]["n"]) == (4, 0)


def generic_files():
    """Return the modules that may name no paper's method, data set or figure: all but what is one
    paper's own."""
    own = {SOURCE / "record" / "convert.py"}  # reads what folkman 0.1 wrote, which knew one paper
    for room in ("papers", "experiment", "record", "report", "dash", "cli"):
        yield from (
            p for p in (SOURCE / room).rglob("*.py") if "xie2024" not in p.parts and p not in own
        )


def test_generic_code_names_no_method_no_data_set_and_no_figure():
    xie = find("xie2024")
    words = ("given", "shards", "csv")  # what a task has, a command, a format of tables
    data = ({*BUILDERS, *PARTITIONS} - {*words}) | {"cifar10"}
    named = set(ALGORITHMS) | data | {*xie.figures, *xie.beyond}
    found = []
    for path in generic_files():
        tree = ast.parse(path.read_text())
        texts = {
            id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)
        }  # docstrings
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in texts:
                continue
            if isinstance(node.value, str) and node.value in named:
                found.append(f"{path.relative_to(SOURCE)}:{node.lineno} {node.value!r}")

    assert not found, found
