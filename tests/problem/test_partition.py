"""Partitions: nothing lost, nothing held twice, and each rule told again the slow way."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from folkman.problem import partition

LABELS = st.lists(st.integers(2, 6), min_size=1, max_size=80).map(
    lambda values: np.array(values, np.int32)
)
DISJOINT = ("iid", "case1", "case2", "case4", "dirichlet", "shards")


def retold_spill(targets, nodes, num_labels):
    """Place sample after sample, counting, as the rule is written."""
    held = [[] for _ in range(nodes)]
    for index, target in enumerate(targets):
        node = target
        if nodes > num_labels:
            candidates = [n for n in range(nodes) if n % num_labels == target]
            node = min(candidates, key=lambda n: (len(held[n]), n))
        held[node].append(index)
    return held


def retold_case2(labels, nodes):
    low, num_labels = min(labels), max(labels) - min(labels) + 1
    return retold_spill([(label - low) % nodes for label in labels], nodes, num_labels)


def retold_case4(labels, nodes):
    low, high = min(labels), max(labels)
    num_labels = high - low + 1
    used = min(nodes, num_labels)
    mixing = math.ceil(used / 2)
    targets = []
    for index, label in enumerate(labels):
        if label < (low + high) / 2:
            targets.append(index % mixing)
        elif used == mixing:
            targets.append(0)
        else:
            targets.append(mixing + (label - low) % (used - mixing))
    return retold_spill(targets, nodes, num_labels)


@pytest.mark.parametrize("kind", DISJOINT)
@given(labels=LABELS, nodes=st.integers(1, 12), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_a_partition_is_disjoint_and_covers_everything_or_is_refused(kind, labels, nodes, seed):
    options = {"seed": seed} if kind in ("dirichlet", "shards") else {}

    try:
        parts = partition.split(kind, labels, nodes, **options)
    except ValueError as error:
        assert "expected" in str(error)  # noqa: PT017  refusing is right, its reason is tested below
        return

    assert len(parts) == nodes
    assert all(len(part) for part in parts)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    assert all((np.diff(part) > 0).all() for part in parts)


@given(labels=LABELS, nodes=st.integers(1, 12))
@settings(deadline=None)
def test_cases_2_and_4_are_the_rule_told_sample_by_sample(labels, nodes):
    for build, retold in ((partition.sorted_labels, retold_case2), (partition.half, retold_case4)):
        expected = retold(labels.tolist(), nodes)
        if all(expected):
            assert [part.tolist() for part in build(labels, nodes)] == expected
        else:
            empty = next(node for node, held in enumerate(expected) if not held)
            with pytest.raises(ValueError, match=f"none at node {empty};"):
                build(labels, nodes)


@pytest.mark.parametrize("nodes", [11, 13, 20, 25, 37])
def test_more_nodes_than_labels_spill_over_to_the_least_filled(nodes):
    labels = np.random.default_rng(1).integers(0, 10, 900)

    assert [p.tolist() for p in partition.sorted_labels(labels, nodes)] == retold_case2(
        labels.tolist(), nodes
    )
    assert [p.tolist() for p in partition.half(labels, nodes)] == retold_case4(
        labels.tolist(), nodes
    )


def test_case_1_deals_by_position_and_case_3_gives_everyone_everything():
    labels = np.zeros(7, int)

    assert [p.tolist() for p in partition.split("case1", labels, 3)] == [[0, 3, 6], [1, 4], [2, 5]]
    assert [p.tolist() for p in partition.split("case3", labels, 2)] == [list(range(7))] * 2


@pytest.mark.parametrize(("plain", "papers"), [("even", "case1"), ("by_label", "case2")])
def test_plain_names_are_those_of_the_paper(plain, papers):
    labels = np.random.default_rng(1).integers(0, 10, 90)

    found, old = (partition.split(name, labels, 4) for name in (plain, papers))
    assert [p.tolist() for p in found] == [p.tolist() for p in old]


def test_case_2_with_five_nodes_gives_each_two_labels():
    labels = np.arange(200) % 10

    held = [sorted(set(labels[part].tolist())) for part in partition.sorted_labels(labels, 5)]

    assert held == [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]]


def test_case_4_with_five_nodes_is_the_example_worked_by_hand():
    labels = np.repeat(np.arange(10), 6)  # ten labels of six samples, in order

    parts = partition.half(labels, 5)
    counts = partition.label_counts(labels, parts, 10)

    # Labels 0-4 are positions 0-29, dealt over nodes 0-2 by position: two of each label at each.
    assert [part.tolist() for part in parts[:3]] == [
        list(range(first, 30, 3)) for first in range(3)
    ]
    assert counts[:3].tolist() == [[2, 2, 2, 2, 2, 0, 0, 0, 0, 0]] * 3
    assert counts[3].tolist() == [0, 0, 0, 0, 0, 0, 6, 0, 6, 0]  # {6, 8}
    assert counts[4].tolist() == [0, 0, 0, 0, 0, 6, 0, 6, 0, 6]  # {5, 7, 9}


def test_case_4_with_one_node_or_one_label_loses_nothing():
    assert partition.half(np.array([0, 1, 2]), 1)[0].tolist() == [0, 1, 2]
    assert [p.tolist() for p in partition.half(np.array([4, 4, 4]), 3)] == [[0], [1], [2]]


def test_dirichlet_skews_more_as_the_concentration_falls():
    labels = np.arange(5000) % 10

    def skew(concentration):
        parts = partition.dirichlet(labels, 10, concentration=concentration, seed=3)
        counts = partition.label_counts(labels, parts, 10)
        return np.abs(counts / counts.sum(axis=0) - 0.1).mean()

    assert skew(0.1) > 2 * skew(2.0) > 4 * skew(1000.0)
    assert skew(1000.0) < 0.01


def test_dirichlet_shares_have_the_variance_of_the_distribution():
    # The share of one label at one node is Beta(a, a (N - 1)): mean 1/N, variance (N - 1)/(N^2 (N
    # a + 1)).
    nodes, concentration, num_labels = 4, 0.5, 3000
    labels = np.repeat(np.arange(num_labels), 100)

    parts = partition.dirichlet(labels, nodes, concentration=concentration, seed=0)
    shares = partition.label_counts(labels, parts, num_labels) / 100

    assert shares.mean() == pytest.approx(1 / nodes)
    assert shares[0].mean() == pytest.approx(1 / nodes, abs=0.02)
    assert shares.var() == pytest.approx(
        (nodes - 1) / (nodes**2 * (nodes * concentration + 1)), rel=0.05
    )


def test_dirichlet_redraws_an_empty_node_and_gives_up_in_the_end():
    labels = np.zeros(40, int)
    seeds = range(30)

    # A single label at concentration 0.3 leaves one of 4 nodes empty in most first draws.
    parts = [partition.dirichlet(labels, 4, concentration=0.3, seed=seed) for seed in seeds]

    assert all(len(part) for held in parts for part in held)
    with pytest.raises(
        ValueError, match=r"dirichlet\(1e-05\): expected samples at every node, got none at node \d"
    ):
        partition.dirichlet(labels, 4, concentration=1e-5)


@pytest.mark.parametrize("kind", ["dirichlet", "shards"])
def test_random_partitions_depend_on_their_seed_alone(kind):
    labels = np.arange(600) % 10

    first, again, other = (partition.split(kind, labels, 5, seed=seed) for seed in (1, 1, 2))

    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_shards_give_each_node_few_labels_and_equal_sizes():
    labels = np.arange(1000) % 10

    parts = partition.shards(labels, 10, shards_per_node=2, seed=0)

    assert [len(part) for part in parts] == [100] * 10
    assert max((partition.label_counts(labels, parts, 10) > 0).sum(axis=1)) <= 2


def test_given_follows_the_groups_of_the_data():
    group = np.array([1, 0, 1, 2])

    assert [p.tolist() for p in partition.given(group)] == [[1], [0, 2], [3]]
    assert [p.tolist() for p in partition.split("given", np.zeros((4, 2)), 3, group=group)] == [
        [1],
        [0, 2],
        [3],
    ]
    with pytest.raises(ValueError, match=r"expected groups in 0\.\.1, got 0\.\.2; set nodes = 3"):
        partition.given(group, 2)
    with pytest.raises(ValueError, match="got none at node 3"):
        partition.given(group, 4)
    with pytest.raises(ValueError, match="got none that do"):
        partition.split("given", np.zeros(4), 3)


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=8), data=st.data())
def test_take_keeps_the_total_asked_in_the_partitions_proportions(sizes, data):
    bounds = np.cumsum([0, *sizes])
    parts = [np.arange(low, high) for low, high in itertools.pairwise(bounds)]
    total = data.draw(st.integers(len(sizes), sum(sizes)))
    assume(
        all(total * size >= sum(sizes) for size in sizes)
    )  # else a node would be emptied, tested below

    kept = partition.take(parts, total=total)

    assert sum(len(part) for part in kept) == total
    for part, held in zip(kept, parts, strict=True):
        assert abs(len(part) - total * len(held) / sum(sizes)) < 1
        assert len(set(part.tolist())) == len(part)
        assert set(part.tolist()) <= set(held.tolist())


def test_take_spreads_what_it_keeps_over_the_node():
    assert partition.take([np.arange(100)], per_node=4)[0].tolist() == [0, 25, 50, 75]
    assert [len(p) for p in partition.split("iid", np.zeros(100), 4, per_node=10)] == [10] * 4
    assert [len(p) for p in partition.split("iid", np.zeros(100), 4, total=22)] == [6, 6, 5, 5]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"per_node": 4}, r"expected to keep 1\.\.3 samples of node 1, got 4;"),
        ({"per_node": 0}, r"of node 0, got 0;"),
        ({"total": 9}, r"expected total in 1\.\.8, the samples held, got 9; lower it"),
        ({"total": 1}, r"expected to keep 1\.\.3 samples of node 1, got 0;"),
        ({"total": 4, "per_node": 1}, r"expected one limit, got total=4 and per_node=1; drop one"),
    ],
)
def test_take_refuses_what_is_not_there(limits, message):
    with pytest.raises(ValueError, match=message):
        partition.take([np.arange(5), np.arange(3)], **limits)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: partition.split("dirichelt", np.arange(4), 2),
            "there is no 'dirichelt'; did you mean 'dirichlet'?",
        ),
        (
            lambda: partition.iid(np.arange(4), 0),
            "expected nodes >= 1 and samples, got 0 and 4 samples",
        ),
        (lambda: partition.iid(np.arange(0), 2), "got 2 and 0 samples"),
        (lambda: partition.iid(np.arange(3), 5), "got none at node 3; use fewer nodes"),
        (
            lambda: partition.sorted_labels(np.array([0, 4]), 3),
            "case2: expected samples at every node, got none at",
        ),
        (
            lambda: partition.sorted_labels(np.array([0.5, 1.0]), 2),
            "expected integer labels, got float64",
        ),
        (
            lambda: partition.dirichlet(np.arange(4), 2, concentration=0.0),
            "expected a finite concentration > 0",
        ),
        (
            lambda: partition.shards(np.arange(4), 2, shards_per_node=3),
            "<= 4 samples, got 2 * 3; lower",
        ),
        (lambda: partition.shards(np.arange(4), 2, shards_per_node=0), "got 2 * 0"),
    ],
)
def test_impossible_partitions_are_refused_with_what_to_do(call, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011  the message is compared whole, not as a pattern
        call()

    assert message in str(refused.value)


def test_limits_themselves_are_allowed():
    """As many nodes as samples; one shard per node or per sample; all that is there."""
    labels, sizes = np.array([3, 1, 2, 1]), [5, 3]
    parts = [np.arange(5), np.arange(5, 8)]

    assert [part.tolist() for part in partition.iid(labels, 4)] == [[0], [1], [2], [3]]
    assert [part.tolist() for part in partition.everything(labels[:1], 1)] == [[0]]
    one_each = partition.shards(labels, 2, shards_per_node=1)
    assert sorted(part.tolist() for part in one_each) == [[0, 2], [1, 3]]  # labels 2 3, 1 1
    assert sorted(i for part in partition.shards(labels, 2) for i in part) == [0, 1, 2, 3]
    assert [part.tolist() for part in partition.given(np.array([0, 1]), 2)] == [[0], [1]]
    assert [len(part) for part in partition.take(parts, total=sum(sizes))] == sizes
    assert [len(part) for part in partition.take(parts, per_node=3)] == [3, 3]
    assert [len(part) for part in partition.take(parts, per_node=1)] == [1, 1]
    assert partition.take([np.array([7])], total=1)[0].tolist() == [7]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: partition.given(np.array([-1, 0])), "expected groups in 0..0, got -1..0"),
        (lambda: partition.given(np.array([0, 2]), 2), "expected groups in 0..1, got 0..2"),
        (lambda: partition.dirichlet(np.arange(4), 2, concentration=math.inf), "got inf"),
        (lambda: partition.dirichlet(np.arange(4), 2, concentration=math.nan), "got nan"),
        (lambda: partition.take([np.arange(4)], total=0), "expected total in 1..4"),
        (lambda: partition.shards(np.arange(5), 2, shards_per_node=3), "got 2 * 3"),
    ],
)
def test_the_first_value_beyond_a_limit_is_refused(call, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011  the message is compared whole, not as a pattern
        call()

    assert message in str(refused.value)


def test_label_counts_has_one_row_a_node_and_one_column_a_class():
    labels = np.array([0, 2, 2, 0])

    counts = partition.label_counts(labels, [np.array([0, 1]), np.array([2, 3])], 4)

    assert counts.tolist() == [[1, 0, 1, 0], [1, 0, 1, 0]]
