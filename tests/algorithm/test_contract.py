"""One contract for every algorithm: pure, stateless outside its state, shapes and bits kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from folkman import ALGORITHMS, Inbox, Recording, constant, ideal, load, make_problem, reference, simulate
from folkman.algorithm.steps import step_size

D, NODES = 6, 4


def inbox(key, with_server, dtype=jnp.float32):
    senders = 1 if with_server else NODES
    share = jnp.full(senders, 1 / NODES, dtype)
    weight = share if with_server else share.at[0].set(0.0)
    return Inbox(
        jax.random.normal(key, (senders, D), dtype),
        jnp.arange(senders),
        weight,
        jnp.asarray(1 / NODES, dtype),
        jnp.ones(senders, bool),
        jnp.zeros(senders, jnp.int32),
        jnp.ones(senders, bool),
    )


@pytest.fixture(params=ALGORITHMS, ids=str)
def algorithm(request):
    return ALGORITHMS[request.param](step=0.1)


def live(algorithm, state, box, key):
    """One slot with the gradient 2 v."""
    state = algorithm.receive(state, box)
    v = algorithm.point(state, box)
    return algorithm.update(state, box, jnp.sum(v**2), 2 * v, key)


def test_it_runs_under_jit_and_vmap_and_gives_the_same(algorithm):
    key = jax.random.key(0)
    box = inbox(key, algorithm.server is not None)
    state = algorithm.init(jnp.ones(D), NODES)
    twice = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)

    alone = live(algorithm, state, box, key)
    compiled = jax.jit(lambda s: live(algorithm, s, box, key))(state)
    both = jax.vmap(lambda s: live(algorithm, s, box, key))(twice)

    for a, b, c in zip(*map(jax.tree.leaves, (alone, compiled, both)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
        np.testing.assert_allclose(a, c[1], rtol=1e-6)


def test_it_does_not_recompile(algorithm):
    key = jax.random.key(0)
    box = inbox(key, algorithm.server is not None)
    calls = []

    @jax.jit
    def slot(state):
        calls.append(1)
        return live(algorithm, state, box, key)

    state = algorithm.init(jnp.ones(D), NODES)
    for _ in range(3):
        state = slot(state)

    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_it_keeps_structure_shapes_and_dtypes(x64, algorithm, dtype):
    key = jax.random.key(0)
    state = algorithm.init(jnp.ones(D, dtype), NODES)

    after = live(algorithm, state, inbox(key, algorithm.server is not None, dtype), key)

    assert jax.tree.structure(state) == jax.tree.structure(after)
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    assert algorithm.message(state).dtype == dtype


def test_it_reaches_the_optimum_of_a_quadratic(quadratics, algorithm):
    problem = quadratics(nodes=NODES, heterogeneity=1.0, condition=4.0)

    run = simulate(problem, ideal(), algorithm, slots=2000, recording=Recording(2000))

    assert run.last("optimum_distance") < 1e-9


def test_it_survives_delay_on_equal_nodes(quadratics, algorithm):
    problem = quadratics(nodes=NODES, heterogeneity=0.0, condition=4.0)

    run = simulate(problem, constant(4), algorithm, slots=3000, recording=Recording(3000))

    assert run.last("optimum_distance") < 1e-6


def test_simulator_and_reference_agree(x64, algorithm):
    problem = make_problem(load("digits", train_size=100), "softmax", 3, dtype="float64")

    run = simulate(problem, constant(2), algorithm, slots=9, recording=Recording(timeline=True))

    np.testing.assert_allclose(run.nodes, reference(problem, run.timeline, algorithm).nodes, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("step", [-0.1, float("nan"), float("inf")])
def test_a_step_that_cannot_be_taken_is_refused(name, step):
    with pytest.raises(ValueError, match="step must be a finite number of at least 0"):
        ALGORITHMS[name](step=step)


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("async_sharing", {"scaling": "global"}, "scaling must be"),
        ("fedavg", {"local_steps": 0}, "local_steps must be at least 1"),
        ("fedavg", {"optimizer": "lion"}, "optimizer must be"),
        ("fedavg", {"decay": "linear"}, "decay must be"),
        ("fedavg", {"decay_steps": 0}, "decay_steps must be at least 1"),
    ],
)
def test_wrong_options_are_refused(name, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        ALGORITHMS[name](step=0.1, **options)


@pytest.mark.parametrize(
    ("decay", "steps", "factors"),
    [
        ("constant", 1, [1.0, 1.0, 1.0]),
        ("cosine", 100, [1.0, 0.5, 0.0]),
        ("exponential", 50, np.exp([0.0, -1.0, -2.0])),
        ("inverse_sqrt", 50, 1 / np.sqrt([1.0, 2.0, 3.0])),
    ],
)
def test_schedules_follow_their_formulas(decay, steps, factors):
    eta = step_size(0.2, decay, steps)

    found = np.array([eta(jnp.asarray(count)) for count in (0.0, 50.0, 100.0)], float)

    np.testing.assert_allclose(found, 0.2 * np.asarray(factors), rtol=1e-6, atol=1e-8)


def test_fedavgs_server_drops_what_is_not_finite_and_renormalises():
    server = ALGORITHMS["fedavg"](step=0.1).server
    assert server is not None
    uploads = jnp.asarray([[1.0, 2.0], [0.0, 0.0], [5.0, 6.0]])
    box = Inbox(
        uploads,
        jnp.arange(3),
        jnp.asarray([0.5, 0.3, 0.2]),
        jnp.zeros(()),
        jnp.ones(3, bool),
        jnp.zeros(3, jnp.int32),
        jnp.asarray([True, False, True]),
    )

    after = server.receive(server.init(jnp.zeros(2), 3), box)

    np.testing.assert_allclose(server.params(after), (0.5 * uploads[0] + 0.2 * uploads[2]) / 0.7, rtol=1e-6)
    nobody = server.receive(server.init(jnp.zeros(2), 3), box._replace(finite=jnp.zeros(3, bool)))
    assert np.isnan(server.params(nobody)).all()  # which stops the run


@pytest.mark.parametrize("name", ALGORITHMS)
def test_its_docstring_has_the_reference_and_the_differences(name):
    import sys

    doc = sys.modules[ALGORITHMS[name].__module__].__doc__ or ""

    assert "[1]" in doc
    assert "Differs from [1]" in doc
    assert "arXiv:" in doc or "doi" in doc.lower()
