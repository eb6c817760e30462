"""The benchmark: folkman and others at the same work, in one run, interleaved.

    works/       what is worked at, as data: one file a work
    opponents/   one script an opponent, run inside the opponent's own environment, and its pinned packages
    side.py      folkman's side, speaking the same protocol in a process of its own
    runs.py      starts all, warms them up, asks each in turn, takes medians

Nothing else imports this package but the command line.
"""
