"""The parts of a world, each alone: disk, air, clocks, lists, plans, the shrinker."""

import pytest

from folkman.runtime.core.events import Told
from folkman.runtime.disk import Disk
from folkman.runtime.world.air import Way
from folkman.runtime.world.clock import Clock
from folkman.runtime.world.disk import Interrupted, Trouble, VirtualDisk
from folkman.runtime.world.draws import stream
from folkman.runtime.world.host import MOST_TOLD, Host
from folkman.runtime.world.members import VALID_S, Authority, Held
from folkman.runtime.world.plan import LIES, METHODS, Fault, plan_of
from folkman.runtime.world.shrink import shrink
from folkman.runtime.world.signing import signed_by, signer
from tests.world_coverage import Coverage
from tests.world_excused_mutants import EXCUSED
from tests.world_mutants import BEYOND, Book, drawn, semantic
from tests.world_mutants import _seeds_of as seeds_of
from tests.world_semantic_mutants import SEMANTIC


def disk(seed: int = 0, trouble: Trouble = Trouble()) -> VirtualDisk:  # noqa: B008 - immutable
    return VirtualDisk(stream(seed, "disk"), lambda _: trouble)


# -- disk ----------------------------------------------------------------------------------------


def test_a_virtual_disk_is_a_disk():
    made: Disk = disk()
    made.write("a", b"one")
    made.append("a", b" two")
    made.rename("a", "b")

    assert (made.read("a"), made.read("b"), made.names()) == (None, b"one two", ["b"])


def test_what_was_synced_survives_the_worst_cut():
    made = disk()
    made.write("a", b"x" * 2000)
    made.sync("a")
    made.sync_folder()
    made.write("a", b"y" * 2000)
    made.cut(keeps=0.0)

    assert made.read("a") == b"x" * 2000


def test_a_new_name_is_lost_without_a_sync_of_the_folder():
    made = disk()
    made.write("a", b"x")
    made.sync("a")
    made.cut(keeps=0.0)

    assert made.names() == []


def test_a_rename_is_whole_or_not_at_all():
    ends = set()
    for seed in range(40):
        made = disk(seed)
        made.write("old", b"old")
        made.sync("old")
        made.write("new", b"new")
        made.sync("new")
        made.sync_folder()
        made.rename("new", "old")
        made.cut(keeps=0.5)
        ends.add((made.read("old"), made.read("new")))

    assert ends == {(b"old", b"new"), (b"new", None)}


def test_what_was_not_synced_is_torn_at_sectors():
    ends = set()
    for seed in range(60):
        made = disk(seed)
        made.write("a", b"x" * 1024)
        made.sync("a")
        made.sync_folder()
        made.write("a", b"y" * 1024)
        made.cut(keeps=0.5)
        ends.add(made.read("a"))

    x, y = b"x" * 512, b"y" * 512
    assert ends == {x + x, x + y, y + x, y + y}


def test_an_end_in_the_middle_leaves_a_part_of_a_write():
    made = disk()
    made.now_s, made.operation_s, made.ends_s = 0.0, 1.0, 0.5
    with pytest.raises(Interrupted):
        made.write("a", b"x" * 1000)

    assert len(made.read("a") or b"") < 1000


@pytest.mark.parametrize(
    ("trouble", "code"), [(Trouble(full=True), 28), (Trouble(failing=True), 5)]
)
def test_a_disk_in_trouble_refuses(trouble: Trouble, code: int):
    made = disk(trouble=trouble)
    with pytest.raises(OSError, match="disk") as caught:
        made.write("a", b"some bytes")

    assert caught.value.errno == code


def test_a_flipped_bit_is_one_bit_and_lasts():
    made = disk()
    made.write("a", bytes(100))
    made.sync("a")
    made.sync_folder()
    made.flip()
    made.cut(keeps=0.0)

    assert sum(bin(byte).count("1") for byte in made.read("a") or b"") == 1


# -- air -----------------------------------------------------------------------------------------


def way(*faults: Fault) -> Way:
    made = Way(stream(1, "way"), faults)
    made.up()
    return made


def test_of_messages_that_wait_the_newest_is_sent():
    made = way(Fault("narrow", 0, 0.0, 9.0, 80.0, 1))
    made.publish(0.0, b"x" * 10)
    (first,) = made.send(0.0)
    assert made.publish(0.1, b"old") == 1.0  # the way is taken for a second
    assert made.publish(0.2, b"new") is None
    (second,) = made.send(1.0)

    assert (first.at_s > 1.0, second.data) == (True, b"new")


def test_words_come_in_order_and_wait_while_a_way_is_cut():
    made = way(Fault("partition", 0, 1.0, 2.0, 0.0, 1), Fault("delay", 0, 0.0, 9.0, 0.5, 1))
    arrivals = [made.tell(at_s, b"%d" % n) for n, at_s in enumerate((0.0, 1.5, 1.6, 2.0))]
    times = [each.at_s for each in arrivals if each is not None]

    assert times == sorted(times)
    assert min(times[1:]) > 2.0


def test_a_link_that_goes_down_takes_all_with_it():
    made = way()
    made.publish(0.0, b"x")
    made.down()

    assert (made.send(0.0), made.tell(0.0, b"y"), made.publish(0.0, b"z")) == ([], None, None)


def test_loss_and_duplication_are_as_often_as_said():
    made = way(Fault("loss", 0, 0.0, 9e9, 0.5, 1), Fault("duplicate", 0, 0.0, 9e9, 0.5, 1))
    counts = [0, 0, 0]
    for at_s in range(2000):
        made.publish(float(at_s), b"x")
        counts[len(made.send(float(at_s)))] += 1

    assert abs(counts[0] - 1000) < 120
    assert abs(counts[2] - 500) < 100


# -- clocks, lists, keys -------------------------------------------------------------------------


def test_a_clock_may_drift_and_stop_but_never_falls():
    clock = Clock(10.0, 500.0)
    read = [clock.now_s(10.0), clock.now_s(12.0)]
    clock.run_at(12.0, 2.0)
    read.append(clock.now_s(13.0))
    clock.run_at(13.0, 0.0)
    read.append(clock.now_s(99.0))

    assert read == [500.0, 502.0, 504.0, 504.0]
    assert clock.world_s(505.0) == float("inf")


def test_an_old_or_damaged_list_is_refused_and_the_last_good_one_holds():
    authority = Authority([0, 1, 2])
    held = Held(authority.issues[0])
    held.offer(authority.change(1, None))
    assert held.issue.valid(0.0) == {0, 2}

    held.offer(authority.issues[0])
    assert (held.issue.version, "old" in held.refused) == (2, True)
    held.offer(None)
    assert (held.issue.version, "damaged" in held.refused) == (2, True)
    assert held.issue.valid(VALID_S + 1.0) == frozenset()


def test_a_signature_is_its_member_s_alone():
    signature = signer(1)(b"words")

    assert signed_by(1, b"words", signature)
    assert not signed_by(2, b"words", signature)
    assert not signed_by(1, b"other words", signature)
    assert len(signature) == 64


def test_of_words_that_wait_too_long_the_oldest_goes_as_on_a_device():
    host = Host(0, plan_of(1), Held(Authority([0, 1]).issues[0]), None)
    host.keep(Told(2, b"x"))
    for number in range(MOST_TOLD + 3):
        host.keep(Told(1, b"%d" % number))

    words = [event.data for event in host.queue if isinstance(event, Told) and event.peer == 1]
    assert (words[0], words[-1], len(words)) == (b"3", b"%d" % (MOST_TOLD + 2), MOST_TOLD)
    assert sum(isinstance(event, Told) and event.peer == 2 for event in host.queue) == 1


# -- plans ---------------------------------------------------------------------------------------


def test_a_seed_has_one_plan():
    assert plan_of(7) == plan_of(7)
    assert stream(7, "a").random() != stream(7, "b").random()


def test_seeds_draw_all_methods_faults_and_lies():
    plans = [plan_of(seed) for seed in range(600)]

    assert {plan.method for plan in plans} == set(METHODS)
    assert {lie for plan in plans for _, lie in plan.liars} == set(LIES)
    assert {fault.kind for plan in plans for fault in plan.faults} >= {
        *("loss", "duplicate", "reorder", "delay", "partition", "narrow", "flap"),
        *("kill", "cut", "lost", "suspend", "slow_gradients", "drift", "skew", "jump"),
        *("revoke", "expire", "late_list", "old_list", "damaged_list"),
        *("full", "slow", "failing", "flip", "asked"),
    }
    assert any(not plan.faults for plan in plans)  # without faults all must hold, too
    assert all(fault.stop_s <= plan.heal_s for plan in plans for fault in plan.faults)


def test_the_shrinker_leaves_what_it_takes_to_break():
    plan = next(
        plan
        for seed in range(999)
        if len((plan := plan_of(seed)).faults) > 4 and plan.nodes > 3 and plan.slots > 8
    )
    needed = plan.faults[2]

    small = shrink(plan, lambda tried: needed in tried.faults and tried.nodes >= 2)

    assert small.faults == (needed,)
    assert small.liars == ()
    assert small.nodes == max(2, needed.node + 1, needed.peer + 1)
    assert small.slots <= plan.slots


def test_every_mutant_by_hand_has_its_place():
    """Else the measure of the world's power stops at the first one whose line was rewritten."""
    assert len(list(semantic())) == len(SEMANTIC)


def test_every_excused_mutant_is_still_there():
    """An excuse for a line that was rewritten would hide whatever takes its place."""
    known = {each.key for each in [*semantic(), *drawn(10**6, seed=1)]}

    assert [key for key in EXCUSED if key not in known] == []
    assert all(len(reason) > 20 for reason in EXCUSED.values())


def test_what_was_found_of_a_mutant_counts_for_its_source_alone(tmp_path):
    mutant, path = next(iter(semantic())), tmp_path / "found.jsonl"
    survived = {"status": "survived", "asked": 10, "ran": 4, "differ": [3], "s": 1.0}
    first = Book(path, "this")
    first.note(mutant, survived)
    first.note(mutant, survived | {"asked": 100, "ran": 30, "differ": [50, 60]})

    again, other = Book(path, "this"), Book(path, "that")
    entry = again.found[mutant.name]

    assert (again.asked(mutant), other.asked(mutant)) == (100, 0)
    assert (entry["ran"], entry["differ"], entry["s"]) == (34, [3, 50, 60], 2.0)
    again.note(mutant, {"status": "caught", "seed": 7, "by": 3, "why": "", "s": 1.0})
    assert Book(path, "this").asked(mutant) > 10**9


def test_a_mutant_is_asked_of_the_seeds_that_run_its_lines_and_last_of_those_beyond():
    mutant = next(iter(semantic()))
    bits = sum(1 << seed for seed in (2, 5, 9, 40))
    coverage = Coverage(50, {mutant.path: {mutant.first: bits}}, [], "this", [5])

    assert seeds_of(mutant, coverage, 50, 0, 10) == [2, 9]  # 5 breaks without a mutant
    assert seeds_of(mutant, coverage, 50, 10, 50) == [40]
    assert seeds_of(mutant, coverage, 50, 50, 10**6) == list(BEYOND)
    assert coverage.runs(mutant.path, mutant.first, mutant.first)
    assert not coverage.runs(mutant.path, mutant.first + 1, mutant.first + 1)


def test_a_draw_of_lines_that_run_leaves_the_others_out_and_changes_no_order():
    every = list(drawn(40, seed=1))
    left = every[3]
    lines = {}
    for each in every:
        if (each.path, each.first) != (left.path, left.first):
            lines.setdefault(each.path, {}).update(
                dict.fromkeys(range(each.first, each.last + 1), 1)
            )
    found = list(drawn(40, 1, Coverage(1, lines, [], "this", [])))
    kept = [each.name for each in every if each.name in {one.name for one in found}]

    assert left.name not in {each.name for each in found}
    assert [each.name for each in found if each.name in set(kept)] == kept
