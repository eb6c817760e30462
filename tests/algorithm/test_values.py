"""An algorithm is a value: equal if built alike, and its numbers are arguments of a program."""

import inspect
import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import ALGORITHMS, Algorithm, Inbox, Number, Place, async_sharing, cga, dpsgd, method
from folkman.algorithm.pieces.steps import Decay

D, NODES = 6, 4
PLACE = Place(jnp.asarray(0, jnp.int32), NODES, jax.random.key(1))
SIGNATURES = json.loads((Path(__file__).parent / "signatures.json").read_text())
"""Names and defaults of the options of each method, in order: they are part of the interface."""


def inbox_of(algorithm):
    """Everyone's message is the node's own."""
    senders = 1 if algorithm.travel.servers else NODES
    message = algorithm.message(algorithm.init(jnp.ones(D), PLACE))
    if algorithm.travel.servers:
        server = algorithm.travel.servers[0]
        message = server.message(server.init(jnp.ones(D), NODES))
    return Inbox(
        store=jnp.broadcast_to(message, (senders, len(message))),
        row=jnp.arange(senders),
        weight=jnp.full(senders, 1 / NODES).at[0].set(0.0),
        own_weight=jnp.asarray(0.5),
        heard=jnp.ones(senders, bool),
        age=jnp.zeros(senders, jnp.int32),
        finite=jnp.ones(senders, bool),
    )


def live(algorithm, inbox, start):
    """Return the model after one slot with the gradient 2 v."""
    state = algorithm.receive(algorithm.init(start, PLACE), inbox)
    v = algorithm.point(state, inbox)
    state = algorithm.update(state, inbox, jnp.sum(v**2), 2 * v, jax.random.key(0))
    return algorithm.params(state)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_options_have_the_names_order_and_defaults_that_are_written_down(name):
    found = inspect.signature(ALGORITHMS[name]).parameters.values()

    assert [[each.name, each.default] for each in found] == SIGNATURES[name]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_defaults_in_the_signature_are_those_that_are_used(name):
    written = dict(SIGNATURES[name])

    assert ALGORITHMS[name]() == ALGORITHMS[name](**written)
    inbox, start = inbox_of(ALGORITHMS[name]()), jnp.linspace(0.5, 1.5, D)
    np.testing.assert_array_equal(
        live(ALGORITHMS[name](), inbox, start), live(ALGORITHMS[name](**written), inbox, start)
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_two_that_were_built_alike_are_equal(name):
    build = ALGORITHMS[name]

    assert build(step=0.1) == build(0.1)
    assert hash(build(step=0.1)) == hash(build())
    assert build(step=0.1) != build(step=0.2)
    assert build(step=1) == build(step=1.0)
    assert build() != replace(build(), name="another")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_methods_that_differ_in_numbers_alone_are_one_program(name):
    build = ALGORITHMS[name]
    inbox = inbox_of(build())
    compilations = []

    @jax.jit
    def slot(algorithm, start):
        compilations.append(1)
        return live(algorithm, inbox, start)

    for step in (0.1, 0.2, np.float64(0.3), 1):
        start = jnp.linspace(0.5, 1.5, D)
        np.testing.assert_allclose(
            slot(build(step=step), start), live(build(step=step), inbox, start), rtol=1e-6
        )

    assert len(compilations) == 1


def test_every_number_of_a_method_is_an_argument():
    algorithm = cga(step=0.1, margin=0.2, momentum=0.5)

    numbers, structure = jax.tree.flatten(algorithm)

    assert numbers == [0.1, 0.2, 0.5]
    assert jax.tree.unflatten(structure, numbers) == algorithm
    assert jax.tree.leaves(cga()) == [0.1, 0.9]  # a margin of None is no number
    assert jax.tree.structure(cga()) != structure


def test_an_option_that_is_no_number_is_another_program():
    assert jax.tree.structure(dpsgd()) == jax.tree.structure(dpsgd(0.5))
    assert jax.tree.structure(dpsgd()) != jax.tree.structure(dpsgd(topology="star"))


def test_a_function_among_the_options_is_compared_by_identity():
    def positive(w, step):
        del step
        return jnp.maximum(w, 0.0)

    algorithm = async_sharing(0.1, projection=positive)
    inbox = inbox_of(algorithm)

    assert algorithm == async_sharing(0.1, projection=positive)
    assert algorithm != async_sharing(0.1, projection=lambda w, step: positive(w, step))
    after = jax.jit(lambda a, start: live(a, inbox, start))(algorithm, -jnp.ones(D))
    np.testing.assert_array_equal(after, np.zeros(D))


def test_a_method_with_an_option_that_cannot_be_hashed_is_equal_to_itself_alone():
    algorithm = cga(shapes=[[2, 3]], form="released")
    inbox = inbox_of(algorithm)

    assert algorithm == algorithm  # noqa: PLR0124 - the point
    assert algorithm != cga(shapes=[[2, 3]], form="released")
    assert jax.jit(lambda a, start: live(a, inbox, start))(algorithm, jnp.ones(D)).shape == (D,)


def test_the_numbers_of_a_method_can_be_differentiated_and_mapped_over():
    start = jnp.ones(D)
    inbox = inbox_of(async_sharing())

    def after(step):
        return live(async_sharing(step), inbox, start)

    steps = jnp.asarray([0.1, 0.2])
    np.testing.assert_allclose(
        jax.vmap(after)(steps), jnp.stack([after(step) for step in (0.1, 0.2)]), rtol=1e-6
    )
    assert jax.grad(lambda step: jnp.sum(after(step)))(0.1) != 0


def test_bad_numbers_are_refused_where_they_enter():
    with pytest.raises(ValueError, match="momentum must be in"):
        cga(momentum=1.0)
    with pytest.raises(TypeError):
        dpsgd(steps=0.1)


def test_an_option_that_is_a_number_may_be_whole_numpys_or_traced():
    same = [async_sharing(step) for step in (1, 1.0, np.float32(1), np.int64(1))]

    assert len(set(same)) == 1
    assert {type(number) for each in same for number in jax.tree.leaves(each)} == {float}
    assert jax.tree.structure(same[0]) != jax.tree.structure(async_sharing(jnp.ones(())))


def test_a_recipe_builds_the_method_again_with_other_numbers():
    recipe = cga(step=0.1, margin=0.2, momentum=0.5, topology="star").recipe
    assert recipe is not None

    again = recipe.build((0.3, 0.4, 0.6))

    assert again == cga(step=0.3, margin=0.4, momentum=0.6, topology="star")
    assert again.recipe is not None
    assert again.recipe.without_numbers() == recipe.without_numbers()
    assert recipe.without_numbers().numbers == ()
    with pytest.raises(ValueError, match="zip"):
        recipe.build((0.3,))


def test_numbers_within_a_union_or_a_group_of_options_are_arguments_too():
    class Pull(NamedTuple):
        strength: Number = 2.0
        kind: str = "soft"

    @method
    def mine(
        step: Number | None = None,
        pull: Pull = Pull(),  # noqa: B008 - immutable
        steps: int = 3,
    ) -> Algorithm:
        return replace(async_sharing(pull.strength * (step or 1.0)), name=f"{pull.kind} {steps}")

    assert list(inspect.signature(mine).parameters) == ["step", "strength", "kind", "steps"]
    assert jax.tree.leaves(mine()) == [2.0]
    assert jax.tree.leaves(mine(0.5, 3.0)) == [0.5, 3.0]
    assert mine(kind="hard", steps=4).name == "hard 4"
    assert jax.tree.structure(mine(0.5)) == jax.tree.structure(mine(0.25, strength=7))
    assert jax.tree.structure(mine(0.5)) != jax.tree.structure(mine(0.5, steps=4))
    assert mine.__annotations__["return"] is Algorithm
    assert mine.__annotations__["kind"] is str


def test_a_method_of_ones_own_has_groups_of_options_too():
    @method
    def mine(step: Number = 0.5, decay: Decay = Decay("cosine", 10)) -> Algorithm:  # noqa: B008
        assert isinstance(decay, Decay)
        return replace(async_sharing(step, decay=decay.decay), name="mine")

    assert list(inspect.signature(mine).parameters) == ["step", *Decay._fields]
    assert mine(decay="constant").name == "mine"
    assert mine() == mine(0.5, "cosine", 10)
    assert mine() != async_sharing(0.5, decay="cosine", decay_steps=10)
