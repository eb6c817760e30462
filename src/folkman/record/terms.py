"""The words and the columns of tables and pages, each explained in a sentence or two."""

from typing import NamedTuple

__all__ = ["COLUMNS", "HEADINGS", "TERMS", "TERM_OF", "Column"]

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
    "joules": (
        "The energy of all nodes together: sending, listening and computing. Free links, and other "
        "laws without a radio, do not say how long anyone sends: a message is then charged its "
        "bits / energy.link_bits_per_s (10 Mbit/s unless set), though it takes no time. They cost "
        "much since they carry much."
    ),
    "rounds": (
        "Aggregations that were completed. Of a method that waits for none: the messages that a "
        "node has sent, in the mean over nodes."
    ),
    "age": (
        "How many slots ago the sender formed the copy that a node uses. 0 is a fresh copy. The "
        "mean is over all slots and pairs."
    ),
    "kappa": "The share of slots that nodes spend computing. 1 means that they never wait.",
    "copy": "Another node's parameters, as they were when they were sent.",
    "disagreement": "How far a node's model is from the network's model: ||v_i - w||.",
    "distance": "How far the network's model is from the best possible one: ||w - w*||.",
    "SINR": "Signal power over interference and noise at the receiver, in decibels.",
    "cell": "An area with nodes that share one band of radio frequencies.",
    "share": "The part of the band that a sender has.",
    "snapshot": "A recorded moment of the network. What was sent between two of them is in none.",
    "threshold": "The SINR below which the paper's rule does not use a link.",
    "index": "The number by which the next message is chosen: gain in age by time on the air.",
    "sum": "A message that holds the weighted sum of all copies of its sender.",
    "stamp": "The slot in which parameters were formed.",
    "free links": (
        "A network whose messages take no time: a reference for the others, and not ranked. It is "
        "no bound: a method that bears longer steps can end below it. Algorithm 1 with full "
        "gradients is there descent on all data, whoever holds which, as a node weighs its share."
    ),
    "epoch": "The paper's schedule: all send at once, and all have received when it ends.",
    "station": "The access point in the middle of a cell.",
    "verdict": "How a run went: finished, diverged or not learning, with the reason.",
    "arm": "One algorithm with its options and its network, in a comparison.",
    "tied": (
        "Not told apart from the best: the 95 % interval of the paired difference contains 0, the "
        "difference is the same in every seed, or there are fewer than three seeds."
    ),
    "objective": "How nodes count in the loss: by their samples, or all alike.",
    "diverged": "The training loss is no longer a finite number.",
    "not learning": (
        "The training loss rose, did not fall although it could, or is no better than guessing."
    ),
    "guessing": (
        "The best answer that is the same for every sample: the shares of the classes, or the mean."
    ),
    "tuned": "The step was found by a search on other seeds, the same search for every method.",
}
"""Term -> what it means."""


class Column(NamedTuple):
    """A metric in a table: its heading, what it is in a few words, and the term that explains it.

    The few words stand below a table in a terminal.
    """

    heading: str
    brief: str
    term: str


COLUMNS: dict[str, Column] = {
    "train_loss": Column(
        "train loss", "loss of the common model over all training data", "training loss"
    ),
    "test_accuracy": Column("accuracy", "share of the test samples it gets right", "accuracy"),
    "optimum_distance": Column("from optimum", "distance to the best model", "distance"),
    "bits": Column("bits", "sent by all nodes together", "bits"),
    "energy_j": Column(
        "joules",
        "spent by all nodes, computing and radio; free links are charged by their bits",
        "joules",
    ),
    "mean_age": Column("age", "slots since the copies in use were sent, mean", "age"),
    "kappa": Column("kappa", "share of slots that a node spent computing", "kappa"),
    "gradients": Column("gradients", "computed per node", "gradients"),
    "rounds": Column(
        "rounds", "aggregations, or of a method without them messages sent per node", "rounds"
    ),
}
"""The columns of a table of results, the most telling first."""

HEADINGS: dict[str, str] = {name: column.heading for name, column in COLUMNS.items()} | {
    "joules_per_percent": "J per %"
}
"""Metric -> its heading, where that is not its name."""

TERM_OF: dict[str, str] = (
    {name: column.term for name, column in COLUMNS.items()}
    | {column.heading: column.term for column in COLUMNS.values()}
    | {
        "max_age": "age",
        "mean age held": "age",
        "oldest": "age",
        "age of what it holds": "age",
        "age of its copies": "age",
        "consensus": "disagreement",
        "disagreement": "disagreement",
        "seed": "seed",
        "slots": "slot",
        "share": "share",
        "seen on the air": "snapshot",
        "bandwidth when seen": "share",
        "p": "p",
    }
)
"""Heading or column -> the term that explains it."""
