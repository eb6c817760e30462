"""Lists of members as an authority issues them, and as they reach a node: late, old or damaged."""

from typing import NamedTuple

__all__ = ["Authority", "Held", "Issue"]

VALID_S = 86_400.0 * 10
"""For so long a certificate is valid."""


class Issue(NamedTuple):
    """One signed list."""

    version: int
    until_s: dict[int, float]  # member -> until when its certificate is valid, by the true time

    def valid(self, time_of_day_s: float) -> frozenset[int]:
        """Return the members whose certificates are valid at a time of day."""
        began_s = -VALID_S
        return frozenset(
            member for member, end_s in self.until_s.items() if began_s <= time_of_day_s < end_s
        )


class Authority:
    """Whoever issues the lists: of each version one, the last is the newest."""

    def __init__(self, members: list[int]) -> None:
        self.issues = [Issue(1, dict.fromkeys(members, VALID_S))]

    def change(self, member: int, until_s: float | None) -> Issue:
        """Issue a list in which a member is valid until then; None: it is in the list no more."""
        left = {who: end_s for who, end_s in self.issues[-1].until_s.items() if who != member}
        if until_s is not None:
            left[member] = until_s
        self.issues.append(Issue(len(self.issues) + 1, dict(sorted(left.items()))))
        return self.issues[-1]


class Held:
    """The list that one node has taken."""

    def __init__(self, issue: Issue) -> None:
        self.issue = issue
        self.refused = ""

    def offer(self, issue: Issue | None) -> bool:
        """Take a newer list; None is a damaged one. Tell whether the list has changed."""
        if issue is None:
            self.refused = "the list of members is damaged; the last good one holds"
            return False
        if issue.version < self.issue.version:
            self.refused = (
                f"the list of members has version {issue.version}, {self.issue.version} was taken "
                "before; it is old"
            )
            return False
        changed, self.refused = issue.version > self.issue.version, ""
        self.issue = issue
        return changed
