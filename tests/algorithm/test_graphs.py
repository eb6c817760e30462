"""Graphs: each by its definition, their weights and spectra, and three engines on directed and changing ones."""

from dataclasses import replace
from math import cos, log2, pi

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folkman import Node, Recording, cga, constant, dpsgd, ideal, reference, sgp, simulate, swift
from folkman.algorithm.bass import bass
from folkman.algorithm.matcha import matcha
from folkman.algorithm.pieces.given_graph import read_text
from folkman.algorithm.pieces.graph_sources import as_text
from folkman.algorithm.pieces.topology import GRAPHS, MATCHINGS, Graph, strongly_connected
from folkman.algorithm.travel import Broadcast
from folkman.config.choices import ConfigError
from folkman.config.comparison import resolve, to_toml
from folkman.config.text import read
from folkman.engine.slot import begin, finish, first
from folkman.faults import NO_FAULTS
from folkman.packing import implied
from folkman.radio.network import RadioNetwork
from reference import plain

STEP = 0.1


def weights_of(mixing, nodes):
    return np.asarray(mixing.weights(jnp.ones((nodes, nodes), bool)))


def weights_in(graph, nodes, number):
    mixing = graph.pushing()
    if mixing.in_round is None:
        return weights_of(mixing, nodes)
    return np.asarray(mixing.in_round(nodes, jnp.asarray(number)))


def second(weights):
    """Return the second largest modulus of the eigenvalues."""
    return np.sort(np.abs(np.linalg.eigvals(weights)))[-2]


# --- definitions ---


@pytest.mark.parametrize("nodes", [1, 2, 3, 6, 8])
def test_directed_graphs_send_along_their_definitions(nodes):
    ring, exponential = (np.zeros((nodes, nodes), bool) for _ in range(2))
    for i in range(nodes):
        ring[(i + 1) % nodes, i] = nodes > 1
        hop = 1
        while hop < nodes:
            exponential[(i + hop) % nodes, i] = True
            hop *= 2

    np.testing.assert_array_equal(Graph("directed_ring").adjacency(nodes), ring)
    np.testing.assert_array_equal(Graph("exponential").adjacency(nodes), exponential)


def test_drawn_graphs_are_connected_follow_their_seed_and_have_their_degree():
    for name in ("random_out", "erdos_renyi"):
        one, same, other = (Graph(name, 3, seed).adjacency(12) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one, same)
        assert (one != other).any()
        assert strongly_connected(one)
        assert not one.diagonal().any()
    assert (Graph("random_out", 3, 5).adjacency(12).sum(axis=0) == 3).all()
    drawn = [Graph("erdos_renyi", 6, seed).adjacency(20) for seed in range(40)]
    assert np.mean([edges.sum() / 20 for edges in drawn]) == pytest.approx(6, abs=0.25)
    np.testing.assert_array_equal(drawn[0], drawn[0].T)


@pytest.mark.parametrize("nodes", [2, 5, 6])
def test_matchings_pair_all_nodes_but_one_and_differ_from_round_to_round(x64, nodes):
    rounds = [weights_in(Graph("matching", graph_seed=3), nodes, t) for t in range(40)]

    for weights in rounds:
        np.testing.assert_array_equal(weights, weights.T)
        np.testing.assert_array_equal(weights @ weights, weights)  # a mean of pairs, taken twice
        assert (weights.diagonal() == 1).sum() == nodes % 2
    again = weights_in(Graph("matching", graph_seed=3), nodes, MATCHINGS)
    np.testing.assert_array_equal(again, rounds[0])
    partners = {(i, int(j)) for w in rounds for i in range(nodes) for j in np.flatnonzero(w[i])}
    assert len(partners) == nodes * (nodes - (nodes % 2 == 0)) + (nodes % 2 == 0) * nodes


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([2, 5, 8]),  # few shapes, as each compiles
    st.sampled_from(sorted(set(GRAPHS) - {"schedule", "regular"})),
    st.integers(0, 2**31),
    st.integers(0, 3000),
)
def test_columns_of_every_graph_sum_to_one_and_rows_too_where_it_is_symmetric(
    nodes, name, seed, number
):
    graph = Graph(name, degree=min(4, nodes - 1), graph_seed=seed)

    pushed = weights_in(graph, nodes, number)

    np.testing.assert_allclose(pushed.sum(axis=0), 1.0, atol=1e-6)
    assert (pushed >= 0).all()
    assert (pushed.diagonal() > 0).all()
    edges = pushed > 0
    np.fill_diagonal(edges, False)
    assert not (edges & ~graph.adjacency(nodes)).any()
    if not graph.varies:
        np.testing.assert_array_equal(edges, graph.adjacency(nodes))
        assert strongly_connected(graph.adjacency(nodes))
    if not graph.directed:
        mixing = graph.mixing()
        mixed = weights_of(mixing, nodes)
        np.testing.assert_allclose(mixed.sum(axis=1), 1.0, atol=1e-6)
        np.testing.assert_allclose(mixed, mixed.T, atol=1e-7)


# --- mathematics ---


@pytest.mark.parametrize("nodes", [4, 7, 8])
def test_spectra_are_those_of_the_closed_forms(x64, nodes):
    ring = weights_of(Graph("ring").mixing(), nodes)  # 1/3 (1 + 2 cos(2 pi k / I))
    values = [(1 + 2 * cos(2 * pi * k / nodes)) / 3 for k in range(nodes)]
    np.testing.assert_allclose(np.sort(np.linalg.eigvalsh(ring)), np.sort(values), atol=1e-12)

    directed = weights_of(Graph("directed_ring").pushing(), nodes)  # |1 + e^(i 2 pi k / I)| / 2
    assert second(directed) == pytest.approx(cos(pi / nodes), abs=1e-12)

    if nodes == 8:  # 1 - 2 / (1 + log2 I) on an exponential graph [Ying et al. 2021, Prop. 1]
        exponential = weights_of(Graph("exponential").pushing(), nodes)
        assert second(exponential) == pytest.approx(1 - 2 / (1 + log2(nodes)), abs=1e-12)


@pytest.mark.parametrize("nodes", [2, 4, 16])
def test_one_peer_a_round_averages_exactly_after_log2_rounds(x64, nodes):
    graph, total = Graph("one_peer_exponential"), np.eye(nodes)
    for t in range(int(log2(nodes))):
        total = weights_in(graph, nodes, t) @ total
        assert (total == 1 / nodes).all() == (t + 1 == log2(nodes))

    np.testing.assert_array_equal(total, np.full((nodes, nodes), 1 / nodes))


def after(problem, algorithm, slots, start):
    """Return the nodes' parameters after every slot, begun at `start` (node, d), without noise."""
    compute = (1,) * problem.num_nodes

    def slot(carry, _):
        carry, point, keys = begin(problem, ideal(), algorithm, compute, NO_FAULTS, carry)
        losses = problem.gradients(point, keys)
        carry, _ = finish(problem, ideal(), algorithm, NO_FAULTS, carry, losses)
        return carry, jax.vmap(algorithm.params)(carry.states)

    @jax.jit
    def run(start):
        carry = first(problem, ideal(), algorithm, compute, 0)
        mass = carry.states.memory.at[:, :-1].set(start)
        carry = carry._replace(states=carry.states._replace(memory=mass))
        return jax.lax.scan(slot, carry, None, slots)[1]

    return np.asarray(run(jnp.asarray(start)))


def test_gradient_push_reaches_the_average_on_directed_and_changing_graphs(quadratics):
    """With a step of 0: exactly after log2 I rounds with one peer; at the rate cos(pi / I) on a ring."""
    problem = quadratics(nodes=8, dim=3)
    start = np.random.default_rng(0).normal(size=(8, 3))

    one_peer = after(problem, sgp(0.0, topology="one_peer_exponential"), 5, start)
    ring = after(problem, sgp(0.0, topology="directed_ring"), 81, start)

    np.testing.assert_allclose(one_peer[3], np.tile(start.mean(axis=0), (8, 1)), atol=1e-15)
    assert np.abs(one_peer[2] - start.mean(axis=0)).max() > 0.01
    far = np.linalg.norm(ring - start.mean(axis=0), axis=(1, 2))
    assert far[80] / far[60] == pytest.approx(cos(pi / 8) ** 20, rel=1e-3)


def test_gradient_push_on_an_irregular_digraph_averages_by_its_weights(quadratics):
    """Where rows do not sum to 1, x alone goes elsewhere and x / y to the mean."""
    problem = quadratics(nodes=4, dim=2)
    start = np.random.default_rng(1).normal(size=(4, 2))
    graph = "edges: 0>1 1>2 2>3 3>0 0>2"

    found = after(problem, sgp(0.0, topology=graph), 120, start)

    np.testing.assert_allclose(found[-1], np.tile(start.mean(axis=0), (4, 1)), atol=1e-9)
    weights = weights_of(Graph(graph).pushing(), 4)
    alone = np.linalg.matrix_power(weights, 119) @ start
    assert np.abs(alone - start.mean(axis=0)).max() > 0.05


# --- three engines ---


def by_definition(name, nodes, t):
    """Return the weights of a round once more, in plain NumPy."""
    weights = np.eye(nodes)
    for j in range(nodes):
        if name == "directed_ring":
            sends = {(j + 1) % nodes}
        elif name == "one_peer_exponential":
            sends = {(j + 2 ** (t % int(np.ceil(log2(nodes))))) % nodes}
        else:
            sends = {0: {1, 2}, 1: {3}, 2: {3}, 3: {0}}[j]
        weights[:, j] = 0.0
        weights[[j, *sends], j] = 1 / (1 + len(sends))
    return weights


def retold(problem, name, rounds):
    """Return z_i after some rounds of SGP, in NumPy."""
    nodes = problem.num_nodes
    parts = list(zip(np.asarray(problem.x), np.asarray(problem.y), strict=True))
    x, y = np.tile(np.asarray(problem.initial), (nodes, 1)), np.ones(nodes)
    for t in range(rounds):
        z = x / y[:, None]
        x = x - STEP * np.stack(
            [plain.quadratic_gradient(z[i], *part)[1] for i, part in enumerate(parts)]
        )
        weights = by_definition(name, nodes, t)
        x, y = weights @ x, weights @ y
    return x / y[:, None]


def live(nodes, steps):
    """Let nodes live over bytes, in an order that lets some run ahead as far as they may."""
    sent = {}
    for _ in range(100 * steps):
        if min(node.steps for node in nodes) >= steps:
            return
        for node in nodes[::-1]:
            while not node.offers():
                node.wake()
            number = node.mailbox.round
            if (node.index, number) not in sent:
                sent[node.index, number] = node.send()
            data = sent[node.index, number]
            heard = [nodes[j].mailbox.round for j in node.receivers(number)]
            for j in node.receivers(number):
                nodes[j].receive(data)
            if node.steps < steps and node.complete() and min(heard, default=number) >= number:
                node.wake()
    raise AssertionError("the nodes wait for each other")


GIVEN = "edges: 0>1 0>2 1>3 2>3 3>0"


@pytest.mark.parametrize(
    ("name", "nodes"), [("directed_ring", 3), ("one_peer_exponential", 5), (GIVEN, 4)]
)
def test_simulator_reference_and_nodes_over_bytes_agree_with_the_equations(quadratics, name, nodes):
    problem = quadratics(nodes=nodes, dim=3, heterogeneity=1.0)
    algorithm = sgp(STEP, topology=name)
    run = simulate(
        problem, ideal(), algorithm, slots=8, seed=2, recording=Recording(8, timeline=True)
    )
    slow = reference(problem, run.timeline, algorithm, seed=2)
    shares = np.asarray(problem.share)
    real = [Node(i, problem.of_node(i), algorithm, shares, seed=2) for i in range(nodes)]
    live(real, 8)

    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose([node.params() for node in real], run.nodes, rtol=1e-12, atol=1e-13)
    # the eighth gradient is not yet shared: one more round ends where the next slot begins
    more = simulate(problem, ideal(), algorithm, slots=9, seed=2).nodes
    later = retold(problem, name, 8)
    np.testing.assert_allclose(more - later, -STEP * _gradients(problem, later, name), atol=1e-12)


def _gradients(problem, z, name):
    """Return grad F_i(z_i) / y_i after eight rounds."""
    nodes = problem.num_nodes
    y = np.ones(nodes)
    for t in range(8):
        y = by_definition(name, nodes, t) @ y
    parts = zip(np.asarray(problem.x), np.asarray(problem.y), strict=True)
    found = [plain.quadratic_gradient(z[i], *part)[1] for i, part in enumerate(parts)]
    return np.stack(found) / y[:, None]


@pytest.mark.parametrize(
    "algorithm",
    [dpsgd(STEP, topology="matching"), matcha(STEP), bass(STEP)],
    ids=lambda algorithm: algorithm.name,
)
def test_three_engines_agree_where_nodes_rest_in_some_rounds(quadratics, algorithm):
    """Of five nodes one or more rest in a round; they end it without a message."""
    problem = quadratics(nodes=5, dim=3, heterogeneity=1.0)
    run = simulate(
        problem, constant(2), algorithm, slots=16, seed=2, recording=Recording(16, timeline=True)
    )
    slow = reference(problem, run.timeline, algorithm, seed=2)
    shares = np.asarray(problem.share)
    real = [Node(i, problem.of_node(i), algorithm, shares, seed=2) for i in range(5)]
    steps = int(run.timeline.finished[:, 0].sum())
    live(real, steps)

    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose([node.params() for node in real], run.nodes, rtol=1e-12, atol=1e-13)
    if algorithm.name != "dpsgd":
        return  # tests/algorithm/test_sampled_edges.py tells the others again
    x = np.tile(np.asarray(problem.initial), (5, 1))
    parts = list(zip(np.asarray(problem.x), np.asarray(problem.y), strict=True))
    for t in range(steps):
        grads = np.stack([plain.quadratic_gradient(x[i], *p)[1] for i, p in enumerate(parts)])
        mixed = weights_in(Graph("matching"), 5, t) @ x if t + 1 < steps else x
        x = mixed - STEP * grads
    np.testing.assert_allclose(run.nodes, x, rtol=1e-10, atol=1e-12)


def test_only_the_edges_of_a_round_are_paid_for_and_served(quadratics):
    problem = quadratics(nodes=5, dim=3)
    bits = 3 * 64 + 32  # float64, and the weight

    def cost(topology):
        run = simulate(problem, ideal(), sgp(STEP, topology=topology), slots=9)
        return run.last("bits"), run.last("bits_unicast"), run.last("gradients")

    rounds = cost("complete")[2]
    assert cost("complete") == (5 * bits * rounds, 20 * bits * rounds, rounds)
    assert cost("one_peer_exponential") == (5 * bits * rounds, 5 * bits * rounds, rounds)
    assert cost("matching") == (4 * bits * rounds, 4 * bits * rounds, rounds)  # one rests


def test_on_the_radio_a_round_ends_when_its_own_edges_are_served(quadratics):
    problem = quadratics(nodes=5, dim=3)
    algorithm = sgp(STEP, topology="matching")

    run = simulate(
        problem,
        RadioNetwork(bandwidth_hz=400.0),
        algorithm,
        slots=60,
        recording=Recording(60, timeline=True),
    )
    slow = reference(problem, run.timeline, algorithm, packing=implied(16))

    rounds = len(np.unique(run.timeline.held)) - 1
    # of four nodes a round; one may be repeated, and the last round may go on
    assert run.last("bits_unicast") >= 4 * rounds * (3 * 16 + 32)
    assert rounds > 5
    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-12, atol=1e-13)
    everyone = simulate(
        problem, RadioNetwork(bandwidth_hz=400.0), sgp(STEP, topology="complete"), slots=60
    )
    assert rounds > 1.5 * everyone.last("gradients")


# --- a graph of one's own ---


def test_files_matrices_and_networkx_graphs_are_one_text(tmp_path):
    edges = [(0, 1), (1, 2), (2, 0), (0, 2)]
    matrix = np.zeros((3, 3))
    for tx, rx in edges:
        matrix[rx, tx] = 1
    (tmp_path / "g.csv").write_text("from,to\n0,1\n1,2\n2,0 # back\n\n0,2\n")
    (tmp_path / "g.txt").write_text("0 1\n1 2\n2 0\n0 2\n")
    np.save(tmp_path / "g.npy", matrix.astype(bool))
    np.savez(tmp_path / "g.npz", weights=matrix)
    sources = [*(tmp_path / f"g.{end}" for end in ("csv", "txt", "npy", "npz"))]

    texts = {as_text(source) for source in [*sources, matrix, nx.DiGraph(edges)]}

    assert texts == {"edges: 0>1 0>2 1>2 2>0"}
    assert as_text(str(sources[0])) == as_text(sources[0]) == as_text(*texts)
    np.testing.assert_array_equal(Graph(texts.pop()).adjacency(3), matrix > 0)
    assert as_text(nx.cycle_graph(4)) == "edges: 0-1 0-3 1-2 2-3"
    assert Graph("edges: 0-1 0-3 1-2 2-3").mixing().in_round is None
    np.testing.assert_array_equal(
        weights_of(Graph(as_text(nx.cycle_graph(4))).mixing(), 4),
        weights_of(Graph("ring").mixing(), 4),
    )


def test_an_algorithm_on_a_given_graph_is_a_value(tmp_path):
    matrix = np.roll(np.eye(4), 1, axis=0)
    np.save(tmp_path / "g.npy", matrix)

    built = [sgp(topology=source) for source in (matrix, str(tmp_path / "g.npy"))]
    built.append(sgp(topology=nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0)])))

    assert built[0] == built[1] == built[2]
    assert len({hash(each) for each in built}) == 1
    assert built[0] != sgp(topology="directed_ring")


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([2, 5, 8]), st.integers(0, 2**31))
def test_given_weights_are_used_as_they_are_and_a_node_keeps_the_rest(nodes, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.random((nodes, nodes)) * (rng.random((nodes, nodes)) < 0.4)
    matrix[(np.arange(nodes) + 1) % nodes, np.arange(nodes)] += 0.1  # strongly connected
    np.fill_diagonal(matrix, 0.0)
    matrix /= matrix.sum(axis=0) + rng.random(nodes) + 0.1
    whole = matrix + np.diag(1 - matrix.sum(axis=0))
    symmetric = (matrix + matrix.T) / (2 * nodes)

    pushed = weights_of(Graph(as_text(matrix)).pushing(), nodes)
    mixed = weights_of(Graph(as_text(symmetric)).mixing(), nodes)

    np.testing.assert_allclose(pushed, whole, atol=1e-6)
    np.testing.assert_allclose(pushed.sum(axis=0), 1.0, atol=1e-6)
    assert as_text(whole) == as_text(matrix)
    np.testing.assert_allclose(mixed - np.diag(mixed.diagonal()), symmetric, atol=1e-7)
    np.testing.assert_allclose([mixed.sum(axis=0), mixed.sum(axis=1)], 1.0, atol=1e-6)


def matrix_of(**entries):
    found = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], float)
    for place, value in entries.items():
        found[int(place[1]), int(place[2])] = value
    return found


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("edges: 0>1 1>2", "not strongly connected"),
        ("edges: 0-1 2-3", "falls into parts"),
        ("edges: 0-1 1>1", "an edge to itself"),
        ("edges: 0>1 1>0 0>1", "is there twice"),
        ("edges: 0-1 1-0", "is there twice"),
        ("edges: 0=1", "an edge is written 0>1"),
        ("edges:", "has no edges"),
        ("edges: 0-1:nan", "finite number above 0"),
        ("edges: 0-1:-0.5", "finite number above 0"),
        ("edges: 0>1:x 1>0:1", "must be a number"),
        ("edges: 0-1:0.5 1-2", "have no weight"),
        ("edges: 0-1:0.7 1-2:0.7", "what others take of node 1 sums to 1.4"),
        (np.zeros((2, 3)), "square matrix"),
        (np.array([["a"]]), "square matrix"),
        (np.zeros((2, 2)), "has no edges"),
        (object(), "square matrix"),
        (matrix_of(e01=np.nan), "finite weights"),
        (matrix_of(e01=-1), "finite weights of at least 0, the graph that was given has -1.0"),
        (matrix_of(e00=1), "a diagonal must be 0"),
        (np.pad(matrix_of(), (0, 1)), r"nodes \[3\] have no edges"),
        (nx.Graph([("a", "b")]), "convert_node_labels_to_integers"),
        (nx.MultiGraph([(0, 1)]), "several edges"),
        (nx.Graph([(0, 0), (0, 1)]), "an edge to itself"),
        ("nowhere/g.csv", "cannot be read"),
    ],
)
def test_what_is_no_usable_graph_is_refused_with_a_sentence(source, complaint):
    with pytest.raises(ValueError, match=complaint):
        sgp(topology=source)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0,1\n1,x\n", "has '1,x' in line 2"),
        ("0,1\n1,0\n0,1\n", "is there twice"),
        ("0,1,nan\n1,0,0.5\n", "finite number above 0"),
        ("0,1,2,3\n", "in line 1"),
    ],
)
def test_a_bad_file_of_edges_is_named(tmp_path, text, complaint):
    (tmp_path / "bad.csv").write_text(text)

    with pytest.raises(ValueError, match=complaint) as refused:
        as_text(tmp_path / "bad.csv")

    assert "bad.csv" in str(refused.value)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: dpsgd(topology="directed_ring"), "or the method sgp"),
        (lambda: dpsgd(topology="one_peer_exponential"), "or the method sgp"),
        (lambda: dpsgd(topology="edges: 0>1 1>2 2>0"), "or the method sgp"),
        (lambda: dpsgd(topology="edges: 0>1:0.2 1>0:0.3"), "or the method sgp"),
        (lambda: cga(topology="exponential"), "or the method sgp"),
        (lambda: cga(topology="matching"), "neighbours that stay"),
        (lambda: swift(topology="matching"), "neighbours that stay"),
        (lambda: swift(topology="random_out"), "or the method sgp"),
        (lambda: swift(weights="released", topology="edges: 0-1:0.5"), "without weights"),
        (lambda: sgp(mode="asynchronous", topology="matching"), "on a fixed graph"),
        (lambda: sgp(mode="asynchronous", topology="edges: 0-1:0.5"), "without weights"),
        (lambda: sgp(topology="exponentail"), "did you mean 'exponential'"),
        (lambda: sgp(topology="matching", degree=0), "degree must be at least 1"),
        (lambda: Graph("random_out", 4).adjacency(4), "a degree below their number"),
        (lambda: Graph("erdos_renyi", 1).adjacency(60), "take a larger degree"),
        (lambda: Graph("schedule").adjacency(4), "no edges before a run"),
        (lambda: Graph("edges: 0-1").adjacency(3), "has 2 nodes, the run has 3"),
    ],
)
def test_a_graph_that_a_method_cannot_use_is_refused(call, complaint):
    with pytest.raises(ValueError, match=complaint):
        call()


def test_a_method_without_rounds_refuses_a_graph_of_rounds(quadratics):
    """One of one's own, that hands over any mixing."""
    algorithm = swift(STEP)
    travel = Broadcast(mixing=Graph("matching").mixing())

    with pytest.raises(ValueError, match="has no rounds"):
        simulate(quadratics(nodes=4), ideal(), replace(algorithm, travel=travel), slots=1)


def test_a_configuration_holds_the_edges_of_its_file(tmp_path):
    """So that a run folder, another machine and a device need no other file."""
    (tmp_path / "g.csv").write_text("0,1\n1,2\n2,0\n")
    config = tmp_path / "config.toml"
    config.write_text('nodes = 3\n[[algorithm]]\nname = "sgp"\ntopology = "g.csv"\n')

    found = resolve(read(config))

    assert found.algorithm[0]["topology"] == "edges: 0>1 1>2 2>0"
    (tmp_path / "g.csv").unlink()
    config.write_text(to_toml(found))
    assert resolve(read(config)) == found
    config.write_text('nodes = 3\n[[algorithm]]\nname = "sgp"\ntopology = "g.csv"\n')
    with pytest.raises(ConfigError, match=r"algorithm\.0.*cannot be read"):
        resolve(read(config))
    whole, lacking = nx.complete_graph(20), nx.complete_graph(20)
    lacking.remove_edge(18, 19)
    long = [{"name": "sgp", "topology": as_text(graph)} for graph in (whole, lacking)]
    with pytest.raises(ConfigError, match="give each its own label"):  # too long to tell apart
        resolve({"nodes": 20, "algorithm": long})
    with pytest.raises(ConfigError, match="has 20 nodes, the run has 5"):
        resolve({"nodes": 5, "algorithm": long[:1]})


def test_texts_are_read_once_and_directed_by_what_they_say():
    assert not read_text("edges: 0>1 1>0").directed
    assert read_text("edges: 0>1:0.2 1>0:0.3").directed
    assert as_text("edges: 1>0 0>1") == "edges: 0-1"


# --- rounds of one's own ---

TURNS = "edges: 0-1 2-3 | 1-2 | 0-4 1-3 2-4"
"""Three rounds of five nodes; in each of them somebody rests."""


def test_files_lists_and_functions_of_rounds_are_one_text(tmp_path):
    rounds = [[(0, 1), (2, 3)], [(1, 2)], [(0, 4), (1, 3), (2, 4)]]
    matrices = np.zeros((3, 5, 5))
    for number, edges in enumerate(rounds):
        for a, b in edges:
            matrices[number, a, b] = matrices[number, b, a] = 1
    graphs = [nx.empty_graph(5) for _ in rounds]
    for graph, edges in zip(graphs, rounds, strict=True):
        graph.add_edges_from(edges)
    lines = "\n|\n".join("\n".join(f"{a},{b}\n{b},{a}" for a, b in edges) for edges in rounds)
    (tmp_path / "g.csv").write_text(f"from,to\n{lines}\n")
    np.save(tmp_path / "g.npy", matrices)
    np.savez(tmp_path / "g.npz", rounds=matrices.astype(bool))

    sources = [tmp_path / f"g.{end}" for end in ("csv", "npy", "npz")]
    sources += [matrices, list(matrices), graphs, tuple(graphs), TURNS]
    sources += [lambda number: graphs[number % 3], lambda number: matrices[number % 3]]

    assert {as_text(source) for source in sources} == {TURNS}
    assert dpsgd(topology=sources[-1]) == dpsgd(topology=TURNS)
    np.testing.assert_array_equal(Graph(TURNS).adjacency(5), matrices.any(axis=0))
    assert read_text("edges: 0>1 1>0 | 0-1").rounds == (((0, 1, 1.0), (1, 0, 1.0)),) * 2


def test_a_function_that_never_repeats_itself_is_asked_for_1024_rounds():
    def rarer(number):
        matrix = np.zeros((2, 2))
        matrix[number % 2, 1 - number % 2] = 0.5 ** min(number + 1, 40)
        return matrix

    text = as_text(rarer)

    assert len(read_text(text).rounds) == 1024
    mixing = Graph(text).pushing()
    assert mixing.in_round is not None
    first, again = (np.asarray(mixing.in_round(2, jnp.asarray(n))) for n in (0, 1024))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, [[1, 0.5], [0, 0.5]])


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 2**31))
def test_weights_of_a_round_are_those_of_its_graph_alone(nodes, length, seed):
    rng = np.random.default_rng(seed)
    rounds = rng.random((length, nodes, nodes)) < 0.4
    rounds = np.triu(rounds, 1) | np.triu(rounds, 1).transpose(0, 2, 1)
    joined = np.arange(nodes - 1)
    rounds[0, joined, joined + 1] = rounds[0, joined + 1, joined] = True  # connected
    rounds[:, 0, 1] = rounds[:, 1, 0] = True  # no round without an edge
    degree = rounds.sum(axis=2)
    expected = np.zeros(rounds.shape)
    for t, i, j in np.argwhere(rounds):
        expected[t, i, j] = 1 / (1 + max(degree[t, i], degree[t, j]))
    expected += np.eye(nodes) * (1 - expected.sum(axis=2, keepdims=True))
    in_round = Graph(as_text([*rounds, *rounds])).mixing().in_round
    assert in_round is not None

    for number in (0, 1, length, 3 * length + 1):
        found = np.asarray(in_round(nodes, jnp.asarray(number)))
        np.testing.assert_allclose(found, expected[number % length], atol=1e-6)
    each = rng.integers(0, 9, nodes)  # nodes of a cluster may be in different rounds
    rows = np.asarray(in_round(nodes, jnp.asarray(each)[:, None]))
    np.testing.assert_allclose(rows, expected[each % length, np.arange(nodes)], atol=1e-6)


def test_one_peer_a_round_as_a_function_is_the_graph_of_that_name(quadratics):
    problem = quadratics(nodes=8, dim=3)
    own = sgp(STEP, topology=lambda number: np.roll(np.eye(8), 2 ** (number % 3), axis=0))

    left, right = (
        simulate(problem, constant(1), each, slots=20)
        for each in (own, sgp(STEP, topology="one_peer_exponential"))
    )

    np.testing.assert_array_equal(left.nodes, right.nodes)
    np.testing.assert_equal(left.rows, right.rows)


@pytest.mark.parametrize("method", [dpsgd, sgp])
def test_three_engines_agree_on_rounds_of_ones_own_with_the_equations(quadratics, method):
    """D-PSGD by Metropolis weights, and SGP by weights that were given, unlike in each round."""
    rng, problem = np.random.default_rng(5), quadratics(nodes=5, dim=3, heterogeneity=1.0)
    third, half = 1 / 3, 1 / 2
    W, topology = np.zeros((3, 5, 5)), TURNS
    for t, i, j, weight in [
        (0, 0, 1, half), (0, 2, 3, half), (1, 1, 2, half),
        (2, 0, 4, third), (2, 1, 3, half), (2, 2, 4, third),
    ]:  # fmt: skip
        W[t, i, j] = W[t, j, i] = weight  # Metropolis: node 4 has two neighbours in the third
    W += np.eye(5) * (1 - W.sum(axis=2, keepdims=True))
    if method is sgp:
        W = np.where((W > 0) & ~np.eye(5, dtype=bool), rng.uniform(0.1, 0.4, W.shape), 0.0)
        topology = as_text(W)
        W = W + np.eye(5) * (1 - W.sum(axis=1, keepdims=True))
    algorithm = method(STEP, topology=topology)

    run = simulate(
        problem, constant(2), algorithm, slots=21, seed=2, recording=Recording(21, timeline=True)
    )
    slow = reference(problem, run.timeline, algorithm, seed=2)
    real = [
        Node(i, problem.of_node(i), algorithm, np.asarray(problem.share), seed=2) for i in range(5)
    ]
    steps = int(run.timeline.finished[:, 0].sum())
    live(real, steps)

    np.testing.assert_allclose(run.nodes, slow.nodes, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose([node.params() for node in real], run.nodes, rtol=1e-12, atol=1e-13)
    parts = list(zip(np.asarray(problem.x), np.asarray(problem.y), strict=True))
    x, y = np.tile(np.asarray(problem.initial), (5, 1)), np.ones(5)
    for t in range(steps):
        z, push = x / y[:, None], W[t % 3] if t + 1 < steps else np.eye(5)
        grads = np.stack([plain.quadratic_gradient(z[i], *p)[1] for i, p in enumerate(parts)])
        if method is sgp:  # adapts, and then pushes
            x, y = push @ (x - STEP * grads), push @ y
        else:
            x = push @ x - STEP * grads
    np.testing.assert_allclose(run.nodes, x / y[:, None], rtol=1e-7, atol=1e-9)


def test_only_the_edges_of_ones_own_rounds_are_paid_for(quadratics):
    problem = quadratics(nodes=5, dim=3)
    run = simulate(problem, ideal(), dpsgd(STEP, topology=TURNS), slots=9)
    rounds = int(run.last("gradients"))
    senders, copies = [4, 2, 5], [4, 2, 6]
    assert run.last("bits") == 3 * 64 * sum(senders[t % 3] for t in range(rounds))
    assert run.last("bits_unicast") == 3 * 64 * sum(copies[t % 3] for t in range(rounds))


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("edges: 0-1 | | 1-2", "give each round at least one"),
        ("edges: 0-1 | 2-3", "falls into parts"),
        ("edges: 0>1 | 1>2", "not strongly connected"),
        ("edges: 0-1 | 1-2:0.5", "some rounds have weights"),
        ("edges: 0-1:0.5 | 0-1:1.0", "what others take of node 0 sums to 1"),
        ("edges: " + " | ".join(["0-1"] * 1025), "1024 rounds at most"),
        ([nx.path_graph(3), nx.path_graph(4)], "must have the same nodes, got 3 and 4"),
        (np.ones((2, 3, 3)) - np.eye(3) - np.ones((3, 3)), "finite weights"),
        (lambda number: number, "expected a square matrix"),
        (lambda _: [nx.path_graph(3)] * 2, "for round 0 it returned list"),
        (lambda _: lambda again: again, "for round 0 it returned function"),
    ],
)
def test_rounds_that_cannot_be_used_are_refused(source, complaint):
    with pytest.raises(ValueError, match=complaint):
        dpsgd(topology=source)
    for method in (cga, swift):
        with pytest.raises(ValueError, match="that was given, whose rounds have their own edges"):
            method(topology=TURNS)
    with pytest.raises(ValueError, match="on a fixed graph"):
        sgp(mode="asynchronous", topology=TURNS)
