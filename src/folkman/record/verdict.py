"""How a run went, in one word, with the reason and what to try.

    finished       the training loss has fallen, or there was nothing to learn
    diverged       the training loss is no longer finite
    not learning   the training loss has risen, or has not fallen, though it could; or it ended, and
                   no longer falls, where the best constant answer is as good; or nothing was sent

A verdict needs the rows alone. Whether the loss could have fallen, and what a constant answer is
worth, is not in them: whoever has the problem may look (`Descent`, `Constant`), and without such a
look a loss that stays level is no reason to complain.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isfinite, isnan, nan, sqrt
from typing import TYPE_CHECKING, NamedTuple

from folkman.record.run import DIVERGED, FINISHED, RUNNING, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NOT_LEARNING", "Constant", "Descent", "Verdict", "complaints", "guesses", "is_level"]
__all__ += ["no_better", "remark", "remarks", "swing", "swings", "unheard", "verdict"]

NOT_LEARNING = "not learning"

LEVEL = 1e-3
"""Share of the first loss by which a loss must change to count as changed."""
LEAST = 1e-3
"""And how much it must rise: a loss of almost 0 may be noise."""


NEAR = 1e-2
"""Share of the loss of the best constant answer by which a loss must be lower to count as better:
the model that gives the shares of the classes is found up to noise only."""
FAR = 2.0
"""How many times the loss of the mean a loss must be for a model that cannot give the mean."""
SWING = 2.0
"""How many times its lowest value the last loss must be to count as a swing, or a loss of the last
third a loss before it there: beside a median of that third, a loss that falls fast would do so."""


class Descent(NamedTuple):
    """The lowest training loss that one plain gradient step from the first model reaches."""

    step: float
    loss: float


class Constant(NamedTuple):
    """What the best constant answer is worth: the training loss, and the test accuracy."""

    loss: float
    accuracy: float  # not a number without classes
    tested: int  # number of test samples

    @property
    def answer(self) -> str:
        """Return it in words."""
        if isnan(self.accuracy):
            return f"always predicting the mean gives {self.loss:.4g}"
        return (
            f"always answering by the shares of the classes gives {self.loss:.4g}, and always the "
            f"most frequent class {self.accuracy:.3g}"
        )

    @property
    def chance(self) -> float:
        """Return the accuracy up to which a model may be no better, by chance of the test data."""
        return self.accuracy + 2 * sqrt(self.accuracy * (1 - self.accuracy) / max(1, self.tested))


class Verdict(NamedTuple):
    """The word, and sentences where it is not `finished`."""

    word: str
    reason: str = ""
    remedy: str = ""

    @property
    def explained(self) -> str:
        """Return the reason and what to try; nothing where all is well."""
        return f"{self.reason}; {self.remedy}" if self.reason else ""

    def __str__(self) -> str:
        """Return a line for people."""
        return f"{self.word}: {self.explained}" if self.reason else self.word


def is_level(rows: "Sequence[Mapping[str, float]]") -> bool:
    """Tell whether the training loss has not fallen from the first row to the last."""
    first, last = (rows[place]["train_loss"] for place in (0, -1))
    return not last < first - LEVEL * abs(first)


def no_better(rows: "Sequence[Mapping[str, float]]", constant: Constant) -> bool:
    """Tell whether a run has ended where the best constant answer is as good, in all it shows."""
    last = rows[-1]
    accuracy = last.get("test_accuracy", nan)
    told = isnan(accuracy) or isnan(constant.accuracy) or accuracy <= constant.chance
    return told and last["train_loss"] >= (1 - NEAR) * constant.loss


def _still_falls(rows: "Sequence[Mapping[str, float]]") -> bool:
    """Tell whether the loss falls in the last third, by more than it goes up and down there."""
    losses = [row["train_loss"] for row in rows]
    late = losses[-max(2, len(losses) // 3 + 1) :]
    ups = sum(max(0.0, after - before) for before, after in pairwise(late))
    fall = late[0] - late[-1]
    return fall > LEVEL * abs(late[0]) and fall > 2 * ups


def swing(rows: "Sequence[Mapping[str, float]]") -> str:
    """Return what to try where the loss fell and rose again; nothing where it did not.

    This is no verdict: such a run has learnt something.
    """
    losses = [row["train_loss"] for row in rows if isfinite(row["train_loss"])]
    if not losses or is_level(rows):
        return ""
    low, last = min(losses), losses[-1]
    what = f"had been {low:.4g} and ended at {last:.4g}"
    if last <= SWING * low + LEAST:
        late = losses[-max(2, len(losses) // 3) :]
        before, top = max(_rises(late), key=lambda pair: pair[1] / max(pair[0], LEAST))
        if top <= SWING * before + LEAST:
            return ""
        what = f"still rose from {before:.4g} to {top:.4g} in its last third"
    return f"the training loss {what}; try a smaller step or younger copies"


def _rises(losses: Sequence[float]) -> "Iterator[tuple[float, float]]":
    """Yield each loss with the lowest one until then."""
    low = losses[0]
    for loss in losses:
        low = min(low, loss)
        yield low, loss


def complaints(runs: Sequence[Run]) -> list[str]:
    """Return a line for each label and kind of bad run: the first one's, and which seeds follow."""
    found: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if run.message:
            found.setdefault((run.label, run.verdict or run.status), []).append(run)
    lines = []
    for first, *others in found.values():
        seeds = ", ".join(str(run.seed) for run in others)
        few = "seed" if len(others) == 1 else "seeds"
        lines.append(f"{first.message} ({few} {seeds} alike)" if others else first.message)
    return lines


def remarks(runs: Sequence[Run]) -> list[str]:
    """Return what terminal, report and page say of runs that ended and have no bad verdict."""
    return swings(runs) + unheard(runs) + guesses(runs)


def swings(runs: Sequence[Run]) -> list[str]:
    """Return a line for each label with runs that fell and rose again, with the first one's."""
    return _by_label(runs, "swings", lambda run: swing(run.rows))


def unheard(runs: Sequence[Run]) -> list[str]:
    """Return a line for each label with pairs that never heard each other, with the first one's."""
    return _by_label(runs, "has unheard pairs", lambda run: _unheard_pairs(run.rows))


def guesses(runs: Sequence[Run]) -> list[str]:
    """Return a line for each label with runs that a constant answer is as good as in a part."""
    return _by_label(runs, "compares badly with guessing", lambda run: run.remark)


def _unheard_pairs(rows: "Sequence[Mapping[str, float]]") -> str:
    """Return how many pairs had only the common first message at the end; nothing for none."""
    told = (rows[place].get("pairs_unheard", 0.0) for place in (0, -1))
    first, last = (int(pairs) if isfinite(pairs) else 0 for pairs in told)  # NaN: not recorded
    if not last or not rows[-1]["slots"]:
        return ""
    return (
        f"the nodes of {last} of {max(first, last)} pairs never heard each other; run longer, or "
        "on a radio raise power_dbm or lower threshold_db (folkman radio shows who can hear whom)"
    )


def _by_label(runs: Sequence[Run], what: str, words_of: "Callable[[Run], str]") -> list[str]:
    """Return a line for each label with words on its runs: how many seeds, the first one's."""
    found: dict[str, list[str]] = {}
    for run in runs:
        ended = run.rows and not run.message and run.status != RUNNING
        if ended and (words := words_of(run)):
            found.setdefault(run.label, []).append(f"with seed {run.seed} {words}")
    counts = Counter(run.label for run in runs)
    return [
        f"'{label}' {what} ({len(lines)} of {counts[label]} seeds): {lines[0]}"
        for label, lines in found.items()
    ]


def verdict(
    rows: "Sequence[Mapping[str, float]]",
    descent: Descent | None = None,
    constant: Constant | None = None,
) -> Verdict:
    """Return the verdict on the rows of a run that has ended."""
    if not rows:
        return Verdict(FINISHED)
    last, slots = rows[-1], int(rows[-1]["slots"])
    if not isfinite(last["train_loss"]):
        reason = f"the training loss was no longer finite at slot {slots}"
        return Verdict(DIVERGED, reason, "try a smaller step or less delay")
    if slots and last["bits"] == 0 and last.get("pairs_unheard"):
        reason = f"nothing was sent in {slots} slots: no node was scheduled, or none was done"
        return Verdict(NOT_LEARNING, reason, "lower the threshold of the radio, or run longer")
    if slots and is_level(rows):
        return _unfallen(rows, descent)
    if slots and constant is not None and no_better(rows, constant) and not _still_falls(rows):
        return _guessing(rows, descent, constant)
    return Verdict(FINISHED)


def remark(rows: "Sequence[Mapping[str, float]]", constant: Constant) -> str:
    """Return what to say of a run that finished where a constant answer is as good in a part.

    The loss is no lower, but still falls; or it is lower, and the accuracy is no higher.
    """
    if not rows or not rows[-1]["slots"] or is_level(rows):
        return ""
    last = rows[-1]
    seen = f"{_ended(last)}; {constant.answer}"
    if no_better(rows, constant):
        return f"{seen}; the loss still falls: run longer, or try a longer step"
    if last.get("test_accuracy", nan) <= constant.accuracy < 1:  # 1: all test data are alike
        return (
            f"{seen}; the loss is lower, the accuracy is not higher: run longer, and where one "
            "class is frequent go by the test loss"
        )
    return ""


def _ended(last: "Mapping[str, float]") -> str:
    """Return the last training loss, and the accuracy where there is one."""
    accuracy = last.get("test_accuracy", nan)
    beside = "" if isnan(accuracy) else f" and accuracy {accuracy:.3g}"
    return f"it ended at training loss {last['train_loss']:.4g}{beside}"


def _guessing(
    rows: "Sequence[Mapping[str, float]]", descent: Descent | None, constant: Constant
) -> Verdict:
    """Return the verdict on a run that ended where the best constant answer is as good."""
    last, low = rows[-1], min(row["train_loss"] for row in rows)
    reason = f"no better than guessing: {_ended(last)}; {constant.answer}"
    lower = descent is not None and descent.loss < (1 - NEAR) * constant.loss
    hint = f" ({_single(descent)})" if descent is not None and lower else ""
    remedy = [f"try another step{hint}, more local_steps, or run longer (`folkman tune`)"]
    if low < (1 - NEAR) * constant.loss:
        remedy = [f"the loss had been {low:.4g}: try a smaller step or younger copies"]
    if last.get("pairs_unheard"):
        pairs = int(last["pairs_unheard"])
        remedy += [f"{pairs} pairs never heard each other: lower the threshold of the radio"]
    if isnan(constant.accuracy) and last["train_loss"] > FAR * constant.loss:
        remedy += ["if targets are far from 0, learn a constant too (model.intercept = true)"]
    remedy += ["if nothing helps, see whether the features say anything of the targets"]
    return Verdict(NOT_LEARNING, reason, "; ".join(remedy))


def _unfallen(rows: "Sequence[Mapping[str, float]]", descent: Descent | None) -> Verdict:
    """Return the verdict on a loss that has not fallen."""
    start, end = rows[0]["train_loss"], rows[-1]["train_loss"]
    could = descent is not None and descent.loss < start - LEVEL * abs(start)
    rose = end > start + LEVEL * abs(start) + LEAST
    if rose and (descent is None or could or _goes_on(rows)):
        return _rising(start, end, descent if could else None)
    if could and not rose:
        return _level(rows[-1], start, end, descent)
    return Verdict(FINISHED)  # there was nothing to learn, up to noise


def _goes_on(rows: "Sequence[Mapping[str, float]]") -> bool:
    """Tell whether the loss still grows at the end: noise about an optimum settles."""
    return rows[-1]["train_loss"] > 2 * rows[len(rows) // 2]["train_loss"]


def _rising(start: float, end: float, descent: Descent | None) -> Verdict:
    reason = f"the training loss rose from {start:.4g} to {end:.4g}"
    hint = "" if descent is None else f" ({_single(descent)})"
    return Verdict(NOT_LEARNING, reason, f"try a smaller step or less delay{hint}")


def _level(
    last: "Mapping[str, float]", start: float, end: float, descent: Descent | None
) -> Verdict:
    """Return why the loss stayed where it was."""
    slots = int(last["slots"])
    if last["gradients"] == 0:
        reason = f"nobody finished a gradient in {slots} slots"
        return Verdict(NOT_LEARNING, reason, "run longer, or lower compute_slots")
    if last["rounds"] == 0:
        reason = f"no round was completed in {slots} slots"
        return Verdict(NOT_LEARNING, reason, "run longer, or make transfers shorter")
    level = f"the training loss stayed at {start:.4g} ({end:.4g} after {slots} slots)"
    if last.get("pairs_unheard"):
        reason = f"{level}, and {int(last['pairs_unheard'])} pairs never heard each other"
        return Verdict(NOT_LEARNING, reason, "run longer, or lower the threshold of the radio")
    hint = "" if descent is None else f" ({_single(descent)})"
    return Verdict(NOT_LEARNING, level, f"try another step{hint}, or run longer")


def _single(descent: Descent) -> str:
    """Return what one gradient step does, without delay: it may be longer than the run's step."""
    return f"without delay a single step of {descent.step:g} lowers it to {descent.loss:.4g}"
