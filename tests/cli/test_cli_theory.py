"""`folkman theory` as a person meets it."""

import json
import re
from pathlib import Path

import jax
import pytest
from typer.testing import CliRunner

from folkman.cli.theory import theory_app
from folkman.config.comparison import resolve, to_toml
from folkman.config.text import override
from folkman.experiment.parts import make_all, parts
from folkman.record.folder import RunFolder

QUADRATIC = ["data.name=quadratic", "data.dim=4", "nodes=3", "slots=40", "seeds=[0]"]
SETTINGS = [*QUADRATIC, "network.gamma=4", "algorithm.0.step=0.05"]


@pytest.fixture
def folkman():
    """Return a caller of the commands that gives back x64 as it was."""
    x64 = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]

    def call(*arguments):
        return CliRunner().invoke(theory_app, [str(argument) for argument in arguments])

    yield call
    jax.config.update("jax_enable_x64", x64)


@pytest.fixture
def folder(tmp_path):
    def make(*settings):
        comparison = resolve(override({}, [*SETTINGS, *settings]))
        root = tmp_path / "run"
        make_all(parts(comparison), RunFolder.create(root, to_toml(comparison)))
        return root

    return make


def last_json(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_gap_prints_rows_and_draws_a_figure(folkman, tmp_path):
    figure = tmp_path / "gap.png"

    answer = last_json(
        folkman("gap", "--nodes", 1, "--nodes", 4, "--model", "worst", "--json", "--plot", figure)
    )

    assert [row["nodes"] for row in answer["rows"]] == [1, 4]
    assert answer["rows"][1]["normalised"] == pytest.approx(0.25)
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_gap_without_options_goes_to_64_nodes(folkman):
    result = folkman("gap", "--model", "worst")

    assert result.exit_code == 0
    assert "breaks it" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines() if line.strip()[:1].isdigit()][
        -1
    ] == "64"


def test_bound_examines_a_folder_and_repeats_its_run(folkman, folder, tmp_path):
    root, figure = folder(), tmp_path / "bound.svg"

    answer = last_json(folkman("bound", root, "--json", "--plot", figure))

    (found,) = answer["runs"]
    assert found["differs_from_folder"] < 1e-5
    assert {bound["name"]: bound["holds"] for bound in found["bounds"]["ceiling"]} == dict.fromkeys(
        ("simple", "ages", "spread", "afterwards"), True
    )
    assert found["theorem_2"]["vacuous"]
    assert "vacuous here because" in found["theorem_2"]["verdict"]
    assert found["theorem_h"]["holds"]
    assert found["theorem_h"]["l1"] == "ceiling"
    assert {row["quantity"] for row in answer["efficiency"]} == {"kappa", "rounds", "bits"}
    assert b"<svg" in figure.read_bytes()


def test_bound_reads_a_saved_timeline(folkman, folder):
    root = folder("keep_timelines=true")

    assert last_json(folkman("bound", root, "--json"))["runs"][0]["differs_from_folder"] is None


def test_bound_says_what_the_theory_is_not_about(folkman, folder):
    root = folder("algorithm.0.decay=cosine")

    error = folkman("bound", root).exception

    assert "decay = cosine" in str(error)
    assert "'FedAvg' has the method fedavg" in str(error)
    assert "there is no label 'x'" in str(folkman("bound", root, "--label", "x").exception)
    assert "there is no seed 9" in str(folkman("bound", root, "--seed", 9).exception)


def test_step_proposes_one_and_judges_the_configured(folkman):
    settings = [part for setting in SETTINGS for part in ("--set", setting)]

    good = last_json(folkman("step", *settings, "--json"))["rows"][0]
    bad = last_json(folkman("step", *settings, "--set", "algorithm.0.step=50.0", "--json"))["rows"][
        0
    ]

    assert 0 < good["proved"] <= good["advised"] < good["stable_below"]
    assert (good["beyond_limit"], bad["beyond_limit"]) == (False, True)
    by_rho = [each["limit"] for each in good["own_part"]]
    assert [each["rho"] for each in good["own_part"]][::3] == [0.0, 1.0]
    assert by_rho[0] < by_rho[1] < by_rho[2]  # a share of the own progress allows longer steps
    assert 0 < good["sufficient"] < good["limit"]
    assert 0 < good["mean_age"] <= good["max_age"]


def test_own_parts_end_where_the_theory_says(folkman):
    given = ["data.heterogeneity=1.0", "network.name=constant", "network.delay=4", "slots=600"]
    given += ["precision=float64", "algorithm.0.step=0.2"]
    settings = [part for one in [*QUADRATIC, *given] for part in ("--set", one)]
    asked = [part for name in ("newest", "0.5", "centred") for part in ("--own", name)]

    newest, half, centred = last_json(folkman("own", *settings, *asked, "--json"))["rows"]

    assert [row["own"] for row in (newest, half, centred)] == ["newest", "0.5", "centred"]
    for row in (newest, half):  # constant ages: exact, once the run rests
        assert row["away"] == pytest.approx(row["bias"], rel=1e-3)
        assert 1e-3 < row["bias"] <= (row["bias_bound"] or float("inf"))
        assert row["moving"] < 1e-6 * row["slope"] < row["slope"] <= row["rest_bound"]
    assert centred["away"] < 1e-5 * newest["away"]
    assert centred["rest_bound"] < 1e-9  # no bias, whatever the step
    assert centred["margin"] > 1 > centred["radius"]
    assert centred["share_at_rest"] == 0


def test_the_theory_of_own_parts_says_what_it_is_not_about(folkman):
    shares = folkman("own", "--own", "measured").exception
    assert "whose shares are constant; got 'measured'" in str(shares)
    assert "batch = 32" in str(folkman("own", "--set", "batch=32").exception)


def test_wrong_input_is_refused_before_any_work(folkman, tmp_path):
    assert "ends in .png" in str(folkman("gap", "--plot", "x.txt").exception)
    assert "make it first" in str(folkman("gap", "--plot", tmp_path / "none" / "x.png").exception)
    assert "is none; check the path" in str(folkman("bound", tmp_path).exception)
    assert "there is no model" in str(folkman("gap", "--model", "x").exception)


def test_the_example_of_the_document_runs(capsys):
    text = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)

    exec(source, {})  # noqa: S102 - our own document

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in lines] == ["simple", "ages", "spread", "afterwards"]
    assert "False" not in [word for line in lines for word in line]
