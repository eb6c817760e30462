"""The benchmark: folkman and others at the same work, in one run, in turn: `python -m benchmarks`.

    command.py        the command line; results.py runs the works that it names, into one file
    tasks.py, tasks/  the works as data: one file per work, one task per number of nodes
    configured.py     a configuration of a user's own as a work; unable.py: what opponents cannot do
    results_page.py   the page of kept results, docs/benchmarks-results.md
    runs.py           the learning works: all sides warmed up, asked in turn, medians
    gpu.py            the work W4: gradients on a GPU
    w5_experiment.py  the work W5: a whole `folkman run`
    own_side.py       folkman's own side, in a process of its own
    opponents/        one script per opponent, and the packages of its environment
    pipe.py           lines to and from the process of one side; memory.py: the memory it uses

`page.py`, `sweeps.py`, `schedules.py`, `transport.py` and `cells.py` are scripts of their own.
"""
