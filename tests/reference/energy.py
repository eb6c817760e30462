"""Time on the air told again, message by message, in plain Python and float64."""

import math

import numpy as np


def of_messages(messages, present, slots):
    """Return how much of each slot nodes send and listen, (slot, node) each.

    `messages` are those of `reference.fresh.tell`, one at a time on a band. A receiver that is away
    in one slot of a message hears no more of it; nor does anyone if that is the sender.
    """
    transmit, receive = np.zeros((2, slots, present.shape[1]))
    for each in messages:
        listening = set(each.receivers)
        for s in range(each.began, min(math.ceil(each.end), slots)):
            part = max(0.0, min(each.end, s + 1) - max(each.start, s))
            if s > each.began:
                listening = {i for i in listening if present[s][i] and present[s][each.sender]}
            transmit[s, each.sender] += part
            for i in listening:
                receive[s, i] += part
    return transmit, receive


def of_epochs(sinr, linked, bits, band_hz, slot_s):
    """Return the same of Proposition 1's epochs, from the SINR (slot, rx, tx) of every slot.

    An epoch that is decided at the end of slot t, by the draws of slot t, begins in slot t + 1.
    """
    slots, nodes, _ = sinr.shape
    transmit, receive = np.zeros((2, slots, nodes))
    t = 0
    while t < slots:
        senders = [k for k in range(nodes) if linked[t, :, k].any()]
        rate = {k: np.log2(1 + sinr[t, linked[t, :, k], k].min()) for k in senders}
        whole = sum(bits / (band_hz * rate[k]) for k in senders) / slot_s  # all end together
        length = max(1, math.ceil(whole * (1 - 2e-6)))
        for s in range(t + 1, min(t + 1 + length, slots)):
            part = min(1.0, whole - (s - t - 1)) if senders else 0.0
            for k in senders:
                transmit[s, k] += part
                receive[s] = np.where(linked[t, :, k], part, receive[s])
        t += length
    return transmit, receive
