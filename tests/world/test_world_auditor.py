"""Every invariant can fail, mended bugs stay mended, and the world runs the real core."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.world_mutants import TARGETS

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = {
    "older_applied": 1,
    "published_unsaved": 2,
    "sequence_falls": 3,
    "two_contents": 4,
    "revoked_kept": 5,
    "hoards": 6,
    "state_never_saved": 7,
    "beyond_share": 8,
    "beyond_share_unsaid": 8,
    "says_no_rate": 8,
    "silent_after_heal": 9,
    "silent_in_rounds_among_poison": 9,
    "silent_in_rounds_among_false_answers": 9,
    "silent_to_its_server": 9,
    "acknowledges_unheard": 10,
    "unacknowledged": 10,
    "slot_twice": 11,
    "journal_lies": 12,
    "journal_of_sums_lies": 12,
    "acknowledged_and_left": 10,
    "torn_pair": 13,
    "key_twice": 13,
    "round_skipped": 14,
    "never_done": 14,
    "says_it_is_well": 15,
    "uncounted": 16,
    "result_missing": 17,
    "fault_of_its_own": 17,
    "stays_apart": 18,
    "depends_on_more": 19,
    "stands_still": 21,
    "adopts_older_sum": 1,
    "sum_of_other_parts": 1,
    "stranger_in_a_sum": 5,
    "slots_ahead": 11,
    "waits_for_nobody": 22,
    "stays_for_nobody": 22,
    "answer_lost": 22,
    "sends_again": 22,
    "measures_wrongly": 23,
    "keeps_news_to_itself": 23,
    "says_another_time": 24,
    "answers_nobody": 24,
    "greets_nobody": 24,
    "claims_nothing": 25,
    "saves_seldom": 26,
    "skips_a_slot_in_its_journal": 26,
    "begins_elsewhere": 27,
    "carried_away": 28,
    "stranger_passed_on": 5,
    "another_round_taken": 14,
    "sends_again_too_soon": 29,
    "sends_nothing_over_a_new_link": 29,
    "removes_the_state_before": 30,
    "takes_rot_for_a_state": 30,
    "believes_nobody": 31,
    "tells_nobody_of_its_life": 31,
    "sends_what_it_was": 32,
    "leaves_messages_out_of_its_journal": 26,
    "builds_on_an_earlier_life": 4,
    "claims_too_much": 25,
    "never_ends": 22,
    "waits_after_its_round": 22,
    "lives_empty_slots": 14,
    "uses_the_next_round": 14,
    "logs_its_trouble_again_and_again": 15,
    "hears_another_rate": 23,
    "gradient_elsewhere": 33,
    "gradient_elsewhere_in_sums": 33,
    "forgets_when_it_was_formed": 1,
    "holds_too_large_a_number": 1,
    "says_other_links": 23,
    "sends_what_is_no_news": 8,
    "leaves_out_whom_it_forgot": 26,
    "names_another_bringer": 26,
    "leaves_at_once": 22,
    "waits_for_one_who_refused": 22,
    "waits_for_what_is_there": 22,
    "takes_it_before_its_time": 10,
    "leaves_what_is_late": 10,
    "lets_one_claim_without_end": 25,
    "ends_without_its_last_save": 26,
    "says_its_links_too_often": 23,
    "looks_at_the_band_late": 25,
    "adds_more_than_its_share": 32,
    "takes_a_copy_for_another": 32,
    "adopts_a_sum_beyond_limits": 1,
    "learns_without_a_word": 24,
}
"""What is broken on purpose (`tests/world/cases.py`) -> the invariant that says so."""


@pytest.fixture(scope="module")
def found() -> dict:
    """Run all cases in a process that computes with NumPy."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.world.cases"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_invariant_can_fail(found):
    assert {name: found[name] for name in EXPECTED} == EXPECTED
    assert set(EXPECTED.values()) == {*range(1, 20), *range(21, 34)}


def test_nothing_fails_without_a_cause(found):
    assert found["nothing"] == 0


def test_what_was_mended_stays_mended(found):
    assert len(found["mended"]) >= 4
    assert all(text == "" for text in found["mended"].values()), found["mended"]


def test_a_seed_has_one_trace_and_another_seed_another(found):
    first, second = found["again"]

    assert first == second != found["other"]


def test_the_core_of_the_world_is_the_core_of_devices_unchanged(found):
    assert found["core"] is True
    assert found["unlike"] == []
    replaced = ["folkman.runtime.core.core.Core.next_s", "folkman.runtime.durable.save_state"]
    assert found["replaced"] == replaced
    assert found["jax"] is False


def test_a_page_needs_no_network_and_holds_the_whole_schedule(found):
    page = found["page"]
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])

    assert "default-src 'none'" in page
    assert re.findall(r"https?://[^\"]+", page) == ["http://www.w3.org/2000/svg"]
    assert [member["lie"] for member in data["members"]] == ["", "flood", ""]
    assert {line[2] for line in data["lines"]} >= {"begins", "link up", "Publish", "Saved", "ends"}
    assert len(data["flights"]) > 100
    assert len(data["ages"]) > 10


def test_mutants_are_of_the_files_that_the_world_runs(found):
    targets = {path for glob in TARGETS for path in ROOT.glob(glob)}
    plain = {path for path in targets if "def " not in path.read_text()}  # names and numbers alone
    named = ROOT / "src/folkman/runtime/identity.py"  # what a log calls a neighbour: one line

    assert {ROOT / name for name in found["files"]} == targets - plain | {named}


def test_a_seed_of_the_documents_shows_a_partition_that_heals(found):
    seen = found["heals"]
    links = [[round(at_s, 1), what] for at_s, what in seen["links"]]

    assert "folkman world --seed 2372\n" in (ROOT / "docs/world.md").read_text()
    assert (seen["text"], seen["nodes"]) == ("", 2)
    assert seen["faults"] == ["partition at 1->0, 2.82 to 12.00 s"]
    assert links == [[0.2, "link up"], [5.8, "link down"], [12.2, "link up"], [20.0, "link down"]]
    for node, oldest in ((0, 9), (1, 6)):
        ages = [(at_s, age) for at_s, who, age in seen["ages"] if who == node]
        apart = [age for at_s, age in ages if 5.9 < at_s < 12.0]
        assert apart == list(range(apart[0], oldest + 1))  # a slot older in every slot
        assert max(age for at_s, age in ages if at_s < 2.8) == 1
        assert max(age for at_s, age in ages if at_s > 12.4) <= 1
