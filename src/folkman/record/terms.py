"""The words of tables and pages, each explained in a sentence or two."""

__all__ = ["TERMS", "TERM_OF"]

TERMS: dict[str, str] = {
    "training loss": (
        "The mean loss of the network's model on all training data. Lower is better."
    ),
    "accuracy": "The share of test samples that the network's model labels correctly.",
    "interval": (
        "The 95 % interval (Student's t) of a mean over seeds. It needs at least three seeds to "
        "say anything."
    ),
    "paired": (
        "Methods meet the same random draws under the same seed, so they are compared seed by "
        "seed. The interval and p are those of the mean difference."
    ),
    "p": (
        "The chance of a mean difference at least this large if the two methods were equal, by "
        "the paired t test. It is not adjusted for the number of methods."
    ),
    "seed": "The number that all random draws of a run follow from.",
    "slot": "The unit of simulated time. A node computes at most one gradient per slot.",
    "gradients": "The gradients that a node has computed, in the mean over nodes.",
    "bits": "What all senders put on the air. A broadcast counts once.",
    "joules": "The energy of all nodes together: sending, listening and computing.",
    "rounds": "Rounds completed; of a method without rounds, the messages sent per node.",
    "age": (
        "How many slots ago the sender formed the copy that a node uses. 0 is a fresh copy. The "
        "mean is over all slots and pairs."
    ),
    "kappa": "The share of slots that nodes spend computing. 1 means that they never wait.",
    "disagreement": "How far a node's model is from the network's model: ||v_i - w||.",
    "distance": "How far the network's model is from the best possible one: ||w - w*||.",
    "SINR": "Signal power over interference and noise at the receiver, in decibels.",
    "share": "The part of the bandwidth that a sender has.",
    "diverged": "The training loss is no longer a finite number.",
    "not learning": "The training loss rose, or did not fall although it could.",
    "tuned": "The step was found by a search on other seeds, the same search for every method.",
}
"""Term -> what it means."""

TERM_OF: dict[str, str] = {
    "gradients": "gradients",
    "rounds": "rounds",
    "bits": "bits",
    "joules": "joules",
    "energy_j": "joules",
    "train loss": "training loss",
    "train_loss": "training loss",
    "accuracy": "accuracy",
    "test_accuracy": "accuracy",
    "from optimum": "distance",
    "optimum_distance": "distance",
    "age": "age",
    "mean_age": "age",
    "max_age": "age",
    "mean age held": "age",
    "oldest": "age",
    "age of what it holds": "age",
    "age of its copies": "age",
    "kappa": "kappa",
    "consensus": "disagreement",
    "disagreement": "disagreement",
    "seed": "seed",
    "slots": "slot",
    "bandwidth": "share",
    "share": "share",
    "p": "p",
}
"""Heading or column -> the term that explains it."""
