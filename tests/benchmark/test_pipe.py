"""The protocol: lines both ways, whatever else a process does."""

import sys
import time

import pytest

from benchmarks.pipe import Side, SideFailedError

pytestmark = pytest.mark.process

READY = 'import json, sys, time\nprint(json.dumps({"ready": True, "version": "1"}), flush=True)\n'


def side(tmp_path, code, limit_s=20.0):
    script = tmp_path / "side.py"
    script.write_text(code, encoding="utf-8")
    return Side("fake", [sys.executable, str(script)], limit_s)


def test_an_order_is_answered_and_its_time_taken(tmp_path):
    code = READY + (
        "for line in sys.stdin:\n"
        "    order = json.loads(line)\n"
        "    if order['do'] == 'end': break\n"
        "    time.sleep(0.2)\n"
        "    print(json.dumps({'seconds': order['rounds']}), flush=True)\n"
    )
    fake = side(tmp_path, code)

    answer = fake.ask("repeat", rounds=3)
    fake.end()

    assert answer["seconds"] == 3
    assert answer["wall_s"] >= 0.2
    assert fake.memory_mb > 1
    assert fake.process.returncode == 0


def test_a_silent_side_is_given_up(tmp_path):
    fake = side(tmp_path, READY + "time.sleep(60)\n", limit_s=0.5)
    fake.limit_s = 0.5

    with pytest.raises(SideFailedError, match="did not answer within"):
        fake.ask("repeat")
    fake.process.kill()
    fake.end()


def test_the_error_of_a_side_that_ends_has_what_it_printed_last(tmp_path):
    fake = side(tmp_path, READY + "sys.stdin.readline(); sys.exit('no more memory')\n")

    with pytest.raises(SideFailedError, match=r"ended with 1.*no more memory"):
        fake.ask("repeat")
    fake.end()


def test_what_is_not_json_is_refused(tmp_path):
    with pytest.raises(SideFailedError, match="not JSON"):
        side(tmp_path, "print('hello', flush=True)\nimport time; time.sleep(0.1)\n")


def test_children_of_a_side_end_with_it(tmp_path):
    code = READY + (
        "import subprocess\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; "
        "time.sleep(600)'], start_new_session=True)\n"
        "sys.stdin.readline(); print(json.dumps({'child': child.pid}), flush=True)\n"
    )
    fake = side(tmp_path, code)
    child = fake.ask("repeat")["child"]

    fake.end()

    deadline = time.monotonic() + 10
    while _runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(child)


def _runs(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
