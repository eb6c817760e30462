"""Configuration: defaults, overrides, and what is said about a wrong one."""

import tomllib

import jax
import numpy as np
import pytest

from folkman.config import choices
from folkman.config.build import build_problem, pairs
from folkman.config.choices import ConfigError
from folkman.config.comparison import CHOICES, Comparison, resolve, to_toml, told
from folkman.config.text import DEFAULT, override, read
from folkman.record.tuned import SAME_SEEDS, TUNED, sides_of, standings


def test_a_resolved_configuration_resolves_to_itself():
    first = resolve(override({}, ["network.name=iid", "network.gamma=7",
                                  "algorithm.2.network.name=constant",
                                  "algorithm.2.network.delay=2", 'name="a b"',
                                  "batch=3"]))  # fmt: skip

    assert resolve(tomllib.loads(to_toml(first))) == first


def test_every_builder_resolves_with_what_it_requires():
    required = {"path": "some.npz", "delay": 3, "radius": 1.0, "penalty": 1.0, "rate": 1.0}
    for name, choice in CHOICES.items():
        for builder in choice.builders:
            needed = {
                key: required[key]
                for key, (_, default) in choice.options(builder).items()
                if default is ...
            }
            table = choice.resolve({"name": builder, **needed})
            assert choice.resolve(table) == table, (name, builder)


def test_a_built_in_builder_is_read_once(monkeypatch):
    table = {"name": "dirichlet", "concentration": 0.5}
    first = CHOICES["partition"].resolve(table)
    made = []
    monkeypatch.setattr(choices, "create_model", lambda *_, **__: made.append(1))

    assert CHOICES["partition"].resolve(table) == first
    with pytest.raises(ConfigError, match=r"unknown key 'partition\.gamma'"):
        CHOICES["partition"].resolve({**table, "gamma": 1})
    assert not made


def test_an_override_of_a_name_starts_the_table_afresh():
    config = resolve(
        override({"network": {"name": "snapshot", "gamma": 9}}, ["network.name=ideal"])
    )

    assert config.network == {"name": "ideal", "bits_per_parameter": None}


def test_algorithms_of_one_name_are_labelled_by_what_differs():
    tables = [
        {"name": "async_sharing", "step": 0.1},
        {"name": "async_sharing", "step": 0.2},
        {"name": "fedavg"},
    ]

    labels = [table["label"] for table in resolve({"algorithm": tables}).algorithm]

    assert labels == ["async_sharing step=0.1", "async_sharing step=0.2", "fedavg"]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["netwrk.gamma=3"], "unknown key 'netwrk'; did you mean 'network'?"),
        (["network.gama=3"], "unknown key 'network.gama' for 'pipelined'; did you mean 'gamma'?"),
        (
            ["algorithm.0.stp=3"],
            "unknown key 'algorithm.0.stp' for 'async_sharing'; did you mean 'step'?",
        ),
        (["data.name=digit"], r"\[data\] has no 'digit'; did you mean 'digits'?"),
        (["algorithm.0.name=fedavgg"], "has no 'fedavgg'; did you mean 'fedavg'?"),
        (
            ["algorithm.0.step=-1"],
            r"algorithm.0 .*: step must be a finite number of at least 0, got -1",
        ),
        (["algorithm.0.step=fast"], "'algorithm.0.step' is not right"),
        (["algorithm.0.step=mine.py:fall"], "algorithm.0.step is a function .mine.py:fall."),
        (["network.gamma=0"], "gamma must be a whole number of slots of at least 1"),
        (["network.gamma=2.5"], "'network.gamma' is not right"),
        (["algorithm.7.step=1"], "algorithm has 3 entries"),
        (["algorithm.step=1"], "algorithm is a list of tables"),
        (["slots.a=1"], "slots is not a table|'slots' is not right"),
        (["slots=0"], "'slots' is not right"),
        (["nodes=true"], "'nodes' is not right"),
        (["slot_s=inf"], "'slot_s' is not right"),
        (["l2=inf"], "'l2' is not right"),
        (["network.gamma=3000000000"], "at most 1000000"),
        (["network.bits_per_parameter=-16"], "bits_per_parameter must be at least 1"),
        (["seeds=[]"], "'seeds' is not right"),
        (["seeds=[1,1]"], "seeds must differ"),
        (["seeds=[-1]"], "a seed must lie in"),
        (["compute_slots=[1,2]"], "compute_slots must be one number or 5"),
        (["compute_slots=0"], "compute_slots must be at least 1"),
        (["nodes"], "a setting looks like"),
        (["tuned.seeds=[1]"], "notes what a search found and sets nothing"),
        (["=3"], "a setting looks like"),
        (["projection.name=l2_ball"], "'projection.radius' is needed"),
        (["projection.name=l2_ball", "projection.radius=-1"], "radius must be positive"),
        (["network=3"], r"\[network\] must be a table"),
        (["algorithm=[]"], r"\[\[algorithm\]\] must be one table or more"),
        (["algorithm.0.label=FedAvg"], "two algorithms are labelled 'FedAvg'"),
        (["name=../up"], "'name' is not right"),
        (["network.name=trace", "network.path=nowhere.npz"], "there is no nowhere.npz"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_hint(settings, complaint):
    with pytest.raises(ConfigError, match=complaint):
        resolve(override({}, settings))


def test_a_wrong_file_is_refused_with_its_place(tmp_path):
    path = tmp_path / "c.toml"
    with pytest.raises(ConfigError, match=r"there is no .*c\.toml"):
        read(path)
    with pytest.raises(ConfigError, match="is a folder"):
        read(tmp_path)
    path.write_text("slots = \n")
    with pytest.raises(ConfigError, match="line 1"):
        read(path)
    path.write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError, match="expected TOML"):
        read(path)


def test_the_default_is_complete():
    assert set(DEFAULT) == set(CHOICES)
    assert set(resolve({}).model_dump()) == set(Comparison.model_fields)


def test_strings_survive_toml():
    config = resolve({"algorithm": [{"name": "fedavg", "label": 'a "b" \\ c é'}]})

    assert resolve(tomllib.loads(to_toml(config))).algorithm[0]["label"] == 'a "b" \\ c é'


@pytest.mark.parametrize(
    "labels",
    [
        ["eta/small", "eta small"],
        ["A", "a"],
        ["x", "x"],
        ["--"],
        ["a\nb"],
        ["a\x1b[31m"],
        ["a" * 81],
        [""],
    ],
)
def test_labels_that_share_a_file_name_or_cannot_be_shown_are_refused(labels):
    with pytest.raises(ConfigError, match="label"):
        resolve({"algorithm": [{"name": "fedavg", "label": label} for label in labels]})


def test_a_radio_table_is_the_network_and_an_algorithms_own_starts_from_it():
    tables = [
        {"name": "async_sharing"},
        {"name": "async_sharing", "network": {"allocation": "uniform"}},
    ]
    config = resolve({"radio": {"bandwidth_hz": 1e6}, "algorithm": tables})

    assert (config.network["name"], config.network["bandwidth_hz"]) == ("radio", 1e6)
    own = config.algorithm[1]["network"]
    assert (own["name"], own["allocation"], own["bandwidth_hz"]) == ("radio", "uniform", 1e6)
    assert resolve(tomllib.loads(to_toml(config))) == config
    with pytest.raises(ConfigError, match="give one of the two"):
        resolve({"radio": {}, "network": {"name": "ideal"}})


def test_fresh_air_is_a_choice_of_the_radio_and_a_law_of_its_own():
    raw = {"nodes": 3, "data": {"name": "quadratic"}, "slots": 4}
    raw |= {"algorithm": [{"name": "async_sharing"}]}
    radio = {"name": "radio", "schedule": "index", "message": "sum", "weights": "shares"}
    config = resolve({**raw, "network": radio})
    assert resolve(tomllib.loads(to_toml(config))) == config
    problem = build_problem(config, 0)
    ((_, network),) = pairs(config, problem)
    assert (network.schedule, network.message) == ("index", "sum")  # type: ignore[attr-defined]
    assert network.weights == pytest.approx(tuple(map(float, problem.share)))  # type: ignore[attr-defined]
    assert "one message at a time" in network.in_words()
    assert "weighted sum" in network.in_words()

    channel = resolve({**raw, "network": {"name": "shared", "slots": 0.5, "message": "forward"}})
    ((_, network),) = pairs(channel, problem)
    assert (network.slots, network.message) == (0.5, "forward")  # type: ignore[attr-defined]
    assert jax.jit(lambda n: n.slots * 2)(network) == 1.0  # an argument of a compiled program

    with pytest.raises(ConfigError, match="needs schedule = 'index'"):
        pairs(resolve({**raw, "network": {"name": "radio", "message": "sum"}}), problem)
    with pytest.raises(ConfigError, match="message"):
        resolve({**raw, "network": {"name": "shared", "message": "rumour"}})


def test_greek_labels_are_told_apart():
    resolve({"algorithm": [{"name": "fedavg", "label": label} for label in "αβ"]})


def test_synthetic_data_come_with_their_partition_and_model():
    config = resolve({"data": {"name": "quadratic"}})

    assert (config.partition["name"], config.model["name"]) == ("given", "quadratic")
    assert resolve({"data": {"name": "gaussian"}}).model["name"] == "linear"


def test_objective_and_sampling_reach_the_problem_and_are_told_where_they_matter():
    raw = {"nodes": 3, "batch": 4, "data": {"name": "digits", "train_size": 10}}
    plain = resolve(raw)
    changed = resolve({**raw, "objective": "nodes", "sampling": "epochs"})

    problem = build_problem(changed, 0)

    assert (problem.objective, problem.sampling) == ("nodes", "epochs")
    np.testing.assert_allclose(problem.share, 1 / 3, rtol=1e-6)  # of 4, 3 and 3 samples
    assert build_problem(plain, 0).emphasis is not None
    assert "objective" not in to_toml(plain)  # the text of before
    assert 'objective = "nodes"' in to_toml(changed)
    assert resolve(tomllib.loads(to_toml(changed))) == changed
    with pytest.raises(ConfigError, match="'objective' is not right"):
        resolve({**raw, "objective": "users"})


def test_the_demo_is_tuned_and_says_so_only_where_the_search_was_made():
    """If a method got an option, search anew: `config/default.toml` says how."""
    found = standings(sides_of(told(resolve({}))))
    assert set(found.values()) == {TUNED}
    assert len(found) == 3
    tuned_on = standings(sides_of(told(resolve({"seeds": [1000]}))))
    assert set(tuned_on.values()) == {SAME_SEEDS}
    assert resolve({"slots": 20}).tuned is None  # another setting
    assert resolve(override({}, ["algorithm.0.step=0.3"])).tuned is None
    assert resolve(tomllib.loads(to_toml(resolve({})))) == resolve({})
