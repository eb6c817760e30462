"""What a process may use: the least of what is around it grants."""

from math import inf

import pytest

from folkman.machine import granted_bytes, usable_bytes, usable_cores


@pytest.mark.parametrize(
    ("own", "limits", "granted"),
    [
        ("0::/system/job\n", {"system/job/memory.max": "8000", "system/memory.max": "5000"}, 5000),
        ("0::/system/job\n", {"system/job/memory.max": "max", "memory.max": "9000"}, 9000),
        (
            "4:memory:/slurm/job\n1:cpu:/other\n",
            {"memory/slurm/job/memory.limit_in_bytes": "7000"},
            7000,
        ),
        ("1:cpu:/other\n", {"other/memory.max": "10"}, inf),
        ("", {"memory.max": "10"}, inf),
    ],
)
def test_the_least_limit_of_all_groups_around_is_granted(tmp_path, own, limits, granted):
    for name, text in limits.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert granted_bytes(own, tmp_path) == granted


def test_this_process_may_use_something():
    assert usable_cores() >= 1
    assert (usable_bytes() or 1) > 0
