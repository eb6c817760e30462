"""A method around another: it remembers more beside the other's state, and answers as the other.

The outer state is a NamedTuple whose field `own` is the inner method's state. What it sends, where
its gradients are taken, when it computes and what its messages cost are asked of `own`.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from folkman.algorithm.base import Algorithm, Inbox, Place, State
from folkman.algorithm.travel import Travel
from folkman.arrays import Array

__all__ = ["around"]

OF_A_NODE = ("has_news", "rests", "ready", "uploads", "gives_up")
"""The questions of a way to travel that are asked of a node's state."""


def around(
    inner: Algorithm,
    *,
    init: Callable[[Array, Place], State],
    update: Callable[[State, Inbox, Array, Array, Array], State],
    receive: Callable[[State, Inbox], State] | None = None,
) -> Algorithm:
    """Return the inner method with another start, another update, and another way to hear.

    `receive` None lets the inner method hear.
    """

    def hear(state: State, inbox: Inbox) -> State:
        return state._replace(own=inner.receive(state.own, inbox))

    declares, model, price = inner.declares, inner.model, inner.declares.price
    measures = declares.measures
    return replace(
        inner,
        init=init,
        update=update,
        receive=receive or hear,
        point=lambda state, inbox: inner.point(state.own, inbox),
        message=lambda state: inner.message(state.own),
        params=lambda state: inner.params(state.own),
        model=None if model is None else lambda state, inbox: model(state.own, inbox),
        travel=_asked_of_own(inner.travel),
        declares=declares._replace(
            measures=None if measures is None else lambda states: measures(states.own),
            price=None
            if price is None
            else price._replace(form=lambda state: price.form(state.own)),
        ),
    )


def _asked_of_own(travel: Travel) -> Travel:
    """Return the way to travel, asked of the inner method's state."""

    def of_own(ask: Callable[..., Any]) -> Callable[..., Any]:
        return lambda state, *rest: ask(state.own, *rest)

    known = {field.name: getattr(travel, field.name) for field in fields(travel)}  # type: ignore[arg-type]
    asked = {name: of_own(known[name]) for name in OF_A_NODE if known.get(name) is not None}
    notes = known.get("notes")
    if notes is not None:
        asked["notes"] = lambda state: state._replace(own=notes(state.own))
    return replace(travel, **asked)  # type: ignore[type-var]
