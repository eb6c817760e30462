"""Mutants that no schedule can show, each with the reason.

A mutant is named by its file under `src/folkman/runtime`, by the line that it changes, without what
is around it, and by the change. Line numbers are no part of the name, so that it stays.
"""

SAME = {
    (
        "core/saving.py",
        "self._steps = 0  # in the save that is under way",
        "statement dropped",
    ): "it is set whenever a save begins, before anything reads it",
    (
        "core/own_beat.py",
        "self._told: tuple[float, float] = (math.nan, -math.inf)  # R_i as last told, and when",
        "sign dropped",
    ): "the rate beside it is no number, and no rate is near that: the first is told in any case",
    (
        "core/own_beat.py",
        "if abs(period.rate - rate) <= NEWS_SHARE * rate and now_s - told_s < NEWS_S:",
        "comparison: < -> <=",
    ): "they differ in one instant that no clock meets",
    (
        "control.py",
        "if not SIGNATURE_BYTES < len(data) <= LARGEST_BYTES:",
        "comparison: < -> <=",
    ): "a signature without a body is refused either way, under another word",
    (
        "control.py",
        "self._sequence += 1",
        "constant: 1 -> 2",
    ): "numbers of words need to rise, by how much is nobody's matter",
    (
        "mailbox.py",
        "if not 0 <= row < len(self.payload):",
        "comparison: < -> <=",
    ): "only neighbours are forgotten, and each of them has a row",
    (
        "core/fresh_beat.py",
        "self._rest_s = min(2 * self._rest_s, MOST_REST_S)",
        "operator: * -> /",
    ): "a look that found nothing is repeated after any time up to the same limit",
    (
        "durable.py",
        "if form == FORMAT_BEFORE and place is None:",
        "boolean: and -> or",
    ): "it takes a file whose digest alone is damaged; what the file holds is whole",
    (
        "mailbox.py",
        "whole = message._replace(params=params, base=None)",
        "keyword dropped: base=None -> ",
    ): "nobody looks at what a message builds on once it is whole",
    (
        "mailbox.py",
        "if self.round and heard.any():",
        "function: any -> all",
    ): "in lock-step all of them are alike, and elsewhere there are no rounds",
    (
        "core/slots.py",
        "self._wants_s = -math.inf  # when there is something to do",
        "statement dropped",
    ): "it is set as learning begins, before anything reads it",
    (
        "core/hands.py",
        "waits = is_lost and peer in self._neighbours",
        "boolean: and -> or",
    ): "what was answered over a link is forgotten with that link, before there is another",
    (
        "durable.py",
        "place = DIGEST.search(data, 8, _end_of_header(data))",
        "constant: 8 -> 9",
    ): "a header begins with a brace, and no digest is there",
    (
        "core/life.py",
        "self.resumed = False",
        "constant: False -> True",
    ): "it is a word in the first line of a log",
    (
        "link_quality.py",
        "found = bits / max(after_s, 1e-6)",
        "constant: 1e-6 -> 2e-06",
    ): "no acknowledgement comes within two microseconds",
    (
        "core/saving.py",
        "self._ticket += 1",
        "constant: 1 -> 2",
    ): "tickets need to differ, by how much is nobody's matter",
    (
        "codec.py",
        "parameters that are not finite are taken",
        "by hand",
    ): "the mailbox asks once more, after it has rounded them to its own precision",
    (
        "core/fresh_beat.py",
        "an offer of a forgotten copy is carried out",
        "by hand",
    ): "a claim looks once more whether the copy is held",
    (
        "core/hearing.py",
        "a message of an earlier life is acknowledged",
        "by hand",
    ): "it is acknowledged by the newest number that is held, which tells its sender the same",
}
"""Programs that do the same, or what nobody may rely on."""

OUT_OF_REACH = {
    (
        "durable.py",
        'write_whole(disk, MEMBERS_SEEN_FILE, b"%d\\n" % version)',
        "statement dropped",
    ): "the world keeps lists of members itself; tests/runtime/test_durable.py asks for it",
    (
        "core/core.py",
        "self.watch.refused(event.reason, event.text)",
        "statement dropped",
    ): "no transport of the world refuses a stranger; it is a word in a health file",
    (
        "core/rounds.py",
        "self._later = [entry for entry in self._later if entry[0] > now_s]",
        "comparison: > -> >=",
    ): "no schedule has rounds on an emulated air; tests/runtime has",
    (
        "core/rounds.py",
        "self._begun = True",
        "constant: True -> False",
    ): "it counts where senders hold back, on graphs that change; no schedule has one",
    (
        "link_quality.py",
        "return np.inf if known is None else known * (1.0 - self.loss[peer])",
        "operator: * -> /",
    ): "without a threshold every quality is above it, and no schedule has one",
    (
        "core/sending.py",
        "return any(box.messages and box.messages[-1][0] > box.acknowledged for box in boxes)",
        "boolean: and -> or",
    ): "it is asked where senders hold back, on graphs that change; no schedule has one",
    (
        "core/rounds.py",
        "return trips.slots(max(answers + 1, 1), node.index, down=True)",
        "constant: True -> False",
    ): "no schedule has a server on an emulated air; tests/runtime has",
    (
        "durable.py",
        "arrays_of(data)",
        "statement dropped",
    ): "it looks at a file of the format before; tests/runtime/test_durable.py has one",
    (
        "durable.py",
        "if form == FORMAT_BEFORE and place is None:",
        "comparison: is -> is not",
    ): "no schedule begins with a file of the format before; tests/runtime/test_durable.py has one",
    (
        "core/saving.py",
        "if arrays is None and life is None and final is None:",
        "comparison: is -> is not",
    ): "no honest node of a schedule diverges; tests/runtime/test_drive.py has one that does",
    (
        "core/core.py",
        "self._until_s = now_s + (patience_s if first else min(patience_s, SHORT_WAIT_S))",
        "negated: first -> not (first)",
    ): "in the world both limits are two seconds",
}
"""Places that no schedule runs, or whose outcome none looks at: holes of the world, said here."""

EXCUSED: dict[tuple[str, str, str], str] = SAME | OUT_OF_REACH
