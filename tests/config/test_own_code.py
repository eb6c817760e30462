"""Builders from outside the package: where they are found, what they are given, what is refused."""

import importlib
import json
import shutil
import sys
import tomllib

import numpy as np
import pytest

from folkman.config import plugins
from folkman.config.build import build_problem, pairs, seedless
from folkman.config.choices import ConfigError
from folkman.config.comparison import CHOICES, by_content, resolve, to_toml
from folkman.config.own_code import bundled, digests, parcel, write_bundle
from folkman.config.plugins import check_unchanged, raised, unpacked
from folkman.config.text import override, read
from folkman.experiment.plan import axes_of, plan
from folkman.radio.delay import constant

MINE = """
import folkman as fm
import numpy as np

NUMBER = 3
ASKED = {}


def gossip(step: float = 0.5, memory=2):
    return fm.fedavg(step)


def fading(*, seed, nodes, horizon, slot_s, shapes, delay: int = 2):
    ASKED["network"] = dict(locals())
    return fm.constant(delay + seed)


def seeded(step: float, *, seed, nodes, horizon, slot_s, shapes, projection):
    ASKED["algorithm"] = dict(locals())
    return fm.async_sharing(step, projection=projection)


def clipped(limit: float = 1.0, *, seed, nodes, horizon, slot_s, shapes):
    ASKED["projection"] = dict(locals())
    return fm.PROJECTIONS["l2_ball"](limit)


def shuffled(labels, nodes, *, seed):
    return np.array_split(np.random.default_rng(seed).permutation(len(labels)), nodes)


def dealt(labels, nodes, sample, classes, horizon, group=None, *, seed):
    ASKED["partition"] = dict(locals())
    return shuffled(labels, nodes, seed=seed)


def blobs(samples: int = 40, *, nodes, horizon, seed):
    ASKED["data"] = dict(locals())
    y = np.arange(samples) % 2
    x = np.random.default_rng(seed).normal(size=(samples, 3)).astype(np.float32)
    return fm.DataSet("blobs", x, y, x, y, 2)


def tiny(sample, classes, *, seed, nodes, horizon):
    ASKED["model"] = dict(locals())
    return fm.MODELS["softmax"](sample, classes)
"""
SMALL = {"nodes": 3, "slots": 7, "seeds": [4, 5], "data": {"name": "digits", "train_size": 30}}
SMALL |= {"model": {"name": "softmax"}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with own code, apart from the working directory."""
    place, elsewhere = tmp_path / "study", tmp_path / "elsewhere"
    place.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (place / "mine.py").write_text(MINE)
    return place


def configured(folder, text):
    (folder / "c.toml").write_text(text)
    return read(folder / "c.toml")


def named(folder, name, source=None):
    """Resolve one algorithm of a file of own code."""
    if source is not None:
        (folder / "mine.py").write_text(source)
    return resolve({**SMALL, "algorithm": [{"name": f"{folder}/mine.py:{name}"}]})


def module(folder):
    """Return the module that a file became."""
    return CHOICES["algorithm"]._builder(f"{folder}/mine.py:gossip").__globals__


def test_a_file_is_found_beside_its_configuration_and_by_its_path_from_then_on(folder):
    comparison = resolve(configured(folder, '[[algorithm]]\nname = "mine.py:gossip"\nstep = 0.1\n'))

    assert comparison.algorithm[0]["name"] == f"{folder}/mine.py:gossip"
    assert comparison.algorithm[0]["label"] == "gossip"
    assert comparison.algorithm[0]["memory"] == 2
    assert resolve(tomllib.loads(to_toml(comparison))) == comparison


def test_a_file_in_a_setting_is_found_in_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder)

    raw = override({"network": {"name": "mine.py:fading"}}, ["algorithm.0.name=mine.py:gossip"])
    axes = axes_of({}, ["algorithm.0.name=mine.py:gossip,fedavg"])

    assert raw["algorithm"][0]["name"] == f"{folder}/mine.py:gossip"
    assert raw["network"]["name"] == f"{folder}/mine.py:fading"
    assert axes.grid["algorithm.0.name"] == [f"{folder}/mine.py:gossip", "fedavg"]
    assert resolve(raw).algorithm[0]["label"] == "gossip"


def test_own_code_beside_a_sweep_file_may_be_an_axis(folder):
    text = (
        '[[algorithm]]\nname = "fedavg"\n[grid]\nalgorithm.0.name = ["mine.py:gossip", "fedavg"]\n'
    )
    raw = configured(folder, text + "nodes = [2, 3]\n")

    found = plan(raw, axes_of(raw))

    assert {job.arm for job in found.jobs} == {
        f"{name}, nodes={n}" for name in ("gossip", "fedavg") for n in (2, 3)
    }


def test_only_a_file_outside_the_folder_of_its_configuration_is_warned_of_and_once(
    folder, tmp_path, capsys
):
    configured(folder, '[[algorithm]]\nname = "mine.py:gossip"\n')
    assert capsys.readouterr().err == ""
    (tmp_path / "other.toml").write_text('[[algorithm]]\nname = "study/../../far.py:gossip"\n')

    read(tmp_path / "other.toml")
    read(tmp_path / "other.toml")

    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"outside its folder: {tmp_path.parent}/far.py" in said


def test_a_configuration_is_read_without_running_the_code_it_names(folder):
    marker = folder / "ran"
    (folder / "mine.py").write_text(
        f"import pathlib\npathlib.Path({str(marker)!r}).touch()\ndef gossip(): pass\n"
    )

    raw = configured(folder, '[[algorithm]]\nname = "mine.py:gossip"\n')

    assert not marker.exists()
    with pytest.raises(ConfigError):
        resolve(raw)
    assert marker.exists()


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("gossip", "def gosip(): pass", r"has no 'gossip'; did you mean 'gosip'\?"),
        (
            "gossip",
            "import nowhere_to_be_found",
            r"import raised ModuleNotFoundError.*mine\.py, line 1",
        ),
        (
            "gossip",
            "\n1 / 0",
            r"whose import raised ZeroDivisionError: division by zero \(.*mine\.py, line 2\)",
        ),
        ("gossip", "def gossip(:\n", r"whose import raised SyntaxError: .*line 1"),
        ("gossip", "import sys\nsys.exit(3)", r"whose import raised SystemExit: 3 .*line 2"),
        ("gossip", "gossip = 3", r"expected a function that builds the algorithm, got int 3"),
        (
            "gossip",
            "def gossip(): return 3",
            r"expected an fm\.Algorithm, got int; correct what it returns",
        ),
        (
            "gossip",
            "\ndef gossip():\n    raise KeyError('x')",
            r"raised KeyError: 'x' \(.*mine\.py, line 3\)",
        ),
        (
            "gossip",
            "def gossip(step: 'Stp'): pass",
            r"whose types cannot be read: name 'Stp' is not defined",
        ),
        (
            "gossip",
            "class A: pass\ndef gossip(a: A): pass",
            r"an option that no configuration can hold",
        ),
        ("fedavg", "def fedavg(): pass", r"'fedavg' is a built-in algorithm; rename the function"),
    ],
)
def test_own_code_that_cannot_serve_is_refused(folder, name, source, complaint):
    with pytest.raises(ConfigError, match=complaint):
        named(folder, name, source)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nowhere.py:gossip", r"names the file .*nowhere\.py, which cannot be read: No such file"),
        (".:gossip", r"has no '\.:gossip'; for own code write FILE\.py:FUNCTION"),
        ("mine.py", r"has no 'mine\.py'; for own code write FILE\.py:FUNCTION"),
        ("mine.py:", r"for own code write FILE\.py:FUNCTION"),
        (
            "no_such_package.rules:gossip",
            r"the module no_such_package\.rules, which is not installed here",
        ),
        ("json:gossip", r"json has no 'gossip'"),
        (["mine.py:gossip"], r"has no"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(name, complaint):
    with pytest.raises(ConfigError, match=complaint):
        resolve({"algorithm": [{"name": name}]})


def test_the_command_line_ends_with_a_sentence_and_code_2(folder, monkeypatch, capsys):
    from folkman.cli import main

    configured(folder, '[[algorithm]]\nname = "gone.py:gossip"\n')
    monkeypatch.setattr(sys, "argv", ["folkman", "run", str(folder / "c.toml")])

    with pytest.raises(SystemExit) as end:
        main()

    said = capsys.readouterr().err
    assert end.value.code == 2
    assert said.startswith("error: [algorithm.0] names the file")
    assert "Traceback" not in said


WRONG = {
    "data": [
        ("return 3", "an fm.DataSet, got int"),
        ("return fm.load('digits')._replace(y_test=[1])", "NumPy array"),
    ],
    "model": [("return 3", "an fm.Model, got int")],
    "network": [
        ("return 3", "an fm.Network, got int"),
        ("return Loose()", "can be hashed"),
    ],
    "projection": [("return 3", r"a function \(w, step\) -> w, got int")],
    "partition": [
        ("return 3", "a list of 3 arrays of sample numbers, one per node, got int"),
        ("return [np.arange(2)]", "got a list of 1"),
        ("return [np.arange(2)] * 2 + [np.arange(0)]", "got none on node 2"),
        (
            "return [np.arange(2)] * 2 + [np.array([30])]",
            r"expected sample numbers in 0\.\.29, got 30\.\.30 on node 2",
        ),
        (
            "return [np.ones(2)] * 3",
            "a one-dimensional array of whole numbers, got ndarray of float64",
        ),
    ],
}


@pytest.mark.parametrize(
    ("kind", "body", "complaint"), [(k, *case) for k, cases in WRONG.items() for case in cases]
)
def test_a_builder_that_returns_something_else_is_refused(folder, kind, body, complaint):
    loose = (
        "class Loose(type(fm.ideal())):\n    __hash__ = None\n    def __init__(self): "
        "pass\n    alive = 1\n"
    )
    source = f"import folkman as fm\nimport numpy as np\n{loose}    bits_per_parameter = 1\n"
    (folder / "mine.py").write_text(f"{source}def built(nodes):\n    {body}\n")
    raw = {**SMALL, kind: {"name": f"{folder}/mine.py:built"}, "algorithm": [{"name": "fedavg"}]}

    with pytest.raises(ConfigError, match=complaint):
        build_problem(resolve(raw), 0)


def test_every_builder_is_given_what_it_asks_for_and_no_table_may_set_it(folder):
    table = {kind: {"name": f"{folder}/mine.py:{name}"} for kind, name in
             {"data": "blobs", "partition": "dealt", "model": "tiny", "network": "fading",
              "projection": "clipped"}.items()}  # fmt: skip
    raw = {
        **SMALL,
        **table,
        "slot_s": 0.5,
        "algorithm": [{"name": f"{folder}/mine.py:seeded", "step": 0.1}],
    }
    comparison = resolve(raw)
    problem = build_problem(comparison, 5)
    ((algorithm, network),) = pairs(comparison, problem, 5)

    asked = module(folder)["ASKED"]
    every = {"seed": 5, "nodes": 3, "horizon": 7}
    timed = every | {"slot_s": 0.5, "shapes": ((2, 3), (2,))}
    assert asked["data"] == {"samples": 40, **every}
    assert asked["model"] == {"sample": (3,), "classes": 2, **every}
    assert {k: v for k, v in asked["partition"].items() if k not in ("labels", "group")} == {
        "sample": (3,), "classes": 2, **every}  # fmt: skip
    assert asked["partition"]["group"] is None
    np.testing.assert_array_equal(asked["partition"]["labels"], np.arange(40) % 2)
    assert asked["network"] == {"delay": 2, **timed}
    assert asked["projection"] == {"limit": 1.0, **timed}
    assert callable(asked["algorithm"].pop("projection"))
    assert asked["algorithm"] == {"step": 0.1, **timed}
    assert network == constant(2 + 5)
    assert algorithm.name == "async_sharing"
    for kind in table:
        with pytest.raises(ConfigError, match=f"unknown key '{kind}.seed'"):
            resolve({**raw, kind: {**table[kind], "seed": 1}})


def test_an_own_partition_with_a_seed_splits_anew_for_every_seed(folder):
    comparison = resolve({**SMALL, "partition": {"name": f"{folder}/mine.py:shuffled"}})
    labels = [np.asarray(build_problem(comparison, seed).y) for seed in (4, 5, 4)]

    assert not np.array_equal(labels[0], labels[1])
    np.testing.assert_array_equal(labels[0], labels[2])
    pooled = [np.sort(each, axis=None) for each in labels]
    np.testing.assert_array_equal(pooled[0], pooled[1])  # the same samples, dealt otherwise


def test_seeds_share_what_is_built_unless_a_builder_asks_for_one(folder):
    from folkman.experiment.parts import parts

    plain = resolve({**SMALL, "algorithm": [{"name": f"{folder}/mine.py:gossip"}]})
    seeded = resolve(
        {
            **SMALL,
            "network": {"name": f"{folder}/mine.py:fading"},
            "algorithm": [{"name": "fedavg"}],
        }
    )

    one, two = (part.simulation for part in parts(plain))
    assert one.algorithm is two.algorithm
    delays = [part.simulation.network for part in parts(seeded)]
    assert delays == [constant(2 + 4), constant(2 + 5)]
    assert seedless(plain).seeds == (0,)
    assert seedless(seeded).seeds == (4, 5)


def test_a_file_may_import_from_its_own_folder_and_two_folders_do_not_mix(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    for place, step in ((folder, 0.25), (other, 0.75)):
        (place / "rules.py").write_text(f"STEP = {step}\n")
        source = (
            "import folkman as fm\nfrom rules import STEP\n"
            "def gossip(step: float = STEP): return fm.fedavg(step)\n"
        )
        (place / "mine.py").write_text(source)

    raw = {
        **SMALL,
        "algorithm": [
            {"name": f"{place}/mine.py:gossip", "label": place.name} for place in (folder, other)
        ],
    }
    comparison = resolve(raw)

    assert [table["step"] for table in comparison.algorithm] == [0.25, 0.75]
    assert set(digests(comparison)) == {
        f"{p}/{name}.py" for p in (folder, other) for name in ("mine", "rules")
    }
    assert "rules" not in sys.modules
    assert str(folder) not in sys.path
    assert not list(folder.glob("__pycache__"))


def test_identity_is_the_content_of_all_files_and_not_their_place(folder, tmp_path):
    (folder / "rules.py").write_text("STEP = 0.25\n")
    source = (
        "import folkman as fm\nimport rules\ndef gossip(step: float = 0.1): "
        "return fm.fedavg(step)\n"
    )
    here = by_content(named(folder, "gossip", source))
    shutil.copytree(folder, tmp_path / "moved")

    moved = by_content(named(tmp_path / "moved", "gossip"))
    (folder / "rules.py").write_text("STEP = 0.50\n")
    changed = by_content(named(folder, "gossip"))

    assert to_toml(here) == to_toml(moved)
    assert to_toml(here) != to_toml(changed)
    plain = resolve(SMALL)
    assert by_content(plain) == plain


def test_a_file_that_changes_during_a_run_is_read_again_only_when_it_is_asked_for_again(folder):
    comparison = named(folder, "gossip")
    before = digests(comparison)
    (folder / "mine.py").write_text(MINE.replace("0.5", "0.6"))

    assert digests(comparison) == before
    assert named(folder, "gossip").algorithm[0]["step"] == 0.6
    with pytest.raises(
        ValueError, match=r"mine\.py has changed since .*SHA-256 \w{12} then, \w{12} now; restore"
    ):
        check_unchanged(before)
    (folder / "mine.py").unlink()
    with pytest.raises(ValueError, match=r"mine\.py.* cannot be read: No such file.*; put it back"):
        check_unchanged(before)


def test_files_travel_as_json_and_serve_where_their_path_does_not_exist(folder, monkeypatch):
    (folder / "rules.py").write_text("STEP = 0.25\n")
    source = (
        "import folkman as fm\nimport rules\ndef gossip(step: float = rules.STEP): "
        "return fm.fedavg(step)\n"
    )
    comparison = named(folder, "gossip", source)
    sent, raw = json.loads(json.dumps(parcel(comparison))), tomllib.loads(to_toml(comparison))
    shutil.rmtree(folder)
    monkeypatch.setattr(plugins, "_SOURCES", {})  # as in a process that never saw them

    with unpacked(sent):
        there = resolve(raw)
        assert to_toml(by_content(there)) == to_toml(by_content(comparison))
        assert digests(there) == digests(comparison)
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve(raw)


def test_a_parcel_is_taken_and_not_a_file_of_the_same_path(folder):
    comparison = named(folder, "gossip")
    sent = parcel(comparison)
    (folder / "mine.py").write_text(MINE.replace("memory=2", "memory=3"))

    with unpacked(sent):
        assert named(folder, "gossip").algorithm[0]["memory"] == 2
    assert named(folder, "gossip").algorithm[0]["memory"] == 3


def test_a_bundle_holds_its_own_files_and_can_be_moved(folder, tmp_path, capsys):
    own = {"name": f"{folder}/mine.py:fading"}
    raw = {**SMALL, "algorithm": [{"name": f"{folder}/mine.py:gossip", "network": own}]}
    comparison = resolve(raw)
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "config.toml").write_text(to_toml(bundled(comparison)))
    write_bundle(comparison, tmp_path / "cluster")
    shutil.rmtree(folder)
    (tmp_path / "cluster").rename(tmp_path / "board")

    there = resolve(read(tmp_path / "board" / "config.toml"))

    assert there.algorithm[0]["name"].startswith(f"{tmp_path}/board/own_code/")
    assert to_toml(by_content(there)) == to_toml(by_content(comparison))
    assert capsys.readouterr().err == ""


def test_own_code_that_wants_jax_where_there_is_none_is_told_where_arrays_are(monkeypatch):
    """A board has no JAX; the tutorial's file takes its arrays from folkman."""
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("jax")

    told = raised(caught.value, "mine.py")

    assert "folkman.arrays has these arrays with and without JAX" in told
