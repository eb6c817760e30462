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
    (
        "sum_box.py",
        "if stamp > max(self.newest, (life << fresh_codec.LIFE_BITS) - 1):",
        "constant: 1 -> 2",
    ): "the last stamp of a life belongs to a slot that no life is long enough for",
    (
        "sum_box.py",
        "self.round, self.ahead = 0, {}",
        "constant: 0 -> 1",
    ): "sums do not travel in rounds: the number is saved, and nothing reads it",
    (
        "fresh_air.py",
        "self._told = told or Unrolled("
        "band, num_nodes, message_bits, make_key(seed, Stream.DELAY))",
        "boolean: or -> and",
    ): "what the world tells of a band is what the node rolls out itself",
    (
        "core/life.py",
        "if peer in self._believed or not max(self.number, self._next) <= life < MOST_BELIEVED:",
        "comparison: < -> <=",
    ): "they differ in one number of a life that nobody reaches",
    (
        "mailbox.py",
        "self._note(error.node - self._first_sender, error.sequence or 0)",
        "constant: 0 -> 1",
    ): "whoever refuses a message for its numbers has read its sequence",
    (
        "emulation.py",
        "while self._rolled <= slot + 1 and stretches > 0:",
        "comparison: > -> >=",
    ): "how many stretches are rolled out at a time is nobody's matter",
    (
        "mailbox.py",
        "if not np.abs(message.params).max(initial=0.0) <= self.checks.largest:",
        "comparison: <= -> <",
    ): "they differ for one number, which is the limit itself",
    (
        "control.py",
        "if elapsed_s - self.elapsed_s(now_s) < MOST_AHEAD_S:",
        "comparison: < -> <=",
    ): "they differ in one instant that no clock meets",
    (
        "node.py",
        'self.loss = float("nan")  # of the last gradient',
        "statement dropped",
    ): "it is set with every gradient, before anything reads it",
    (
        "core/health.py",
        "name_of(j): round(now_s - at_s, 3) for j, at_s in core.hearing.taken_s.items()",
        "constant: 3 -> 4",
    ): "it is one digit more in a health file",
    (
        "ways.py",
        "return [int(row) for row in np.flatnonzero(beside[index] | beside[:, index])]",
        "operator: | -> &",
    ): "in the world who hears one is heard by it",
    (
        "core/sending.py",
        "self.sent = 0  # number of the last message that went out",
        "statement dropped",
    ): "it is set as a message goes out, before an answer to that is read",
    (
        "fresh_node.py",
        "self.rows = np.zeros((num_nodes, num_nodes), np.int64)",
        "function: zeros -> ones",
    ): "both are stamps of life 0, which nobody lives",
    (
        "core/health.py",
        "if alone_s > settings.alone_s:",
        "comparison: > -> >=",
    ): "they differ in one instant that no clock meets",
    (
        "node.py",
        "other = (self.index + 1) % num_nodes",
        "constant: 1 -> 2",
    ): "the first messages of all others are alike",
    (
        "codec.py",
        "if code >= CHANGE:",
        "comparison: >= -> >",
    ): "no code of entries is 0, so none of a change is just the mark of one",
    (
        "codec.py",
        'if version_of(data) != VERSION or int.from_bytes(data[6:8], "little") < CHANGE:',
        "comparison: < -> <=",
    ): "no code of entries is 0, so none of a change is just the mark of one",
    (
        "core/sending.py",
        "return control.Period(min(rate, 1e15) if math.isfinite(rate) else 0.0, list(receivers))",
        "constant: 1e15 -> 2000000000000000.0",
    ): "no link is as fast as either limit",
    (
        "node.py",
        "return self.index if self.way.waits else None",
        "negated: self.way.waits -> not (self.way.waits)",
    ): "in lock-step a slot begins only when all were heard; elsewhere no method looks at who was",
    (
        "core/slots.py",
        "self._wants_s = math.inf",
        "statement dropped",
    ): "while a gradient is under way nothing reads it",
    (
        "link_quality.py",
        "said = [r for r in self._rates.values() if 0 < r < np.inf]",
        "comparison: < -> <=",
    ): "a rate that is told is finite, and is 0 where nothing was measured",
    (
        "fresh_codec.py",
        "if stamps.max(initial=0) > MOST_SEQUENCE or lived.max(initial=0) > MOST:",
        "constant: 0 -> 1",
    ): "it is said of no stamps at all, and 1 is within the limit too",
    (
        "fresh_codec.py",
        "return (size * bits + 7) // 8 if 1 <= bits <= MOST_BITS else 1 << 62",
        "constant: 1 -> 2",
    ): "an entry of a sum has a bit and those of the number of nodes, two at least",
    (
        "fresh_index.py",
        "faded = self._largest * 0.5 ** (max(now_s - self._noted_s, 0.0) / HALF_LIFE_S)",
        "operator: / -> *",
    ): "the time is one second, and both are the same",
    (
        "fresh_index.py",
        "tie = 0.1 * self._me / self._nodes",
        "constant: 0.1 -> 0.2",
    ): "by how much equal ones wait for each other is nobody's matter",
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
    (
        "feedback.py",
        "require(",
        "statement dropped",
    ): "it refuses methods with other first messages as a node is built; no schedule has one",
    (
        "contributions.py",
        "return np.round((params - self.initial) * factor[node]).astype(np.int64)",
        "operator: - -> +",
    ): "all nodes of the world begin at zero",
    (
        "core/rounds.py",
        "self._saves = bool(offers.any()) and self._answered_at != node.slot",
        "function: any -> all",
    ): "a server of the world has something for all of its nodes, or for none",
    (
        "mailbox.py",
        '"age": np.maximum(slot - self.slot, 0).astype(',
        "constant: 0 -> 1",
    ): "no method of the world looks at the ages of copies",
    (
        "control.py",
        'options = {"tag_field": "type", "forbid_unknown_fields": True, "frozen": True}',
        "constant: True -> False",
    ): "a liar keeps to the format, and nobody changes a word that was read",
    (
        "fresh_codec.py",
        "if stamps.max(initial=0) > MOST_SEQUENCE or lived.max(initial=0) > MOST:",
        "boolean: or -> and",
    ): "a liar keeps to the format; tests/runtime/test_fresh_codec.py has numbers beyond it",
    (
        "fresh_codec.py",
        "if (number, count) != (num_nodes, size) or len(body) - start != expected:",
        "boolean: or -> and",
    ): "a liar keeps to the format; tests/runtime/test_fresh_codec.py has wrong lengths",
    (
        "codec.py",
        "if sequence > MOST_SEQUENCE or slot > MOST or round_ > MOST:",
        "boolean: or -> and",
    ): "a liar keeps to the format; tests/runtime/test_codec.py has numbers beyond it",
    (
        "durable.py",
        'warnings.append(f"the node goes on from {name}, which was saved earlier")',
        "statement dropped",
    ): "it is a word in a log; tests/runtime/test_durable.py asks for it",
    (
        "durable.py",
        "warnings.append(",
        "statement dropped",
    ): "it is a word in a log; tests/runtime/test_durable.py asks for it",
    (
        "fresh_air.py",
        "self._leave_out(least)",
        "statement dropped",
    ): "it drops what will not be done; no node of the world is thousands of slots behind",
    (
        "link_quality.py",
        "return np.inf if known is None else known * (1.0 - self.loss[peer])",
        "operator: - -> +",
    ): "without a threshold every quality is above it, and no schedule has one",
    (
        "link_quality.py",
        "self._periods = 0",
        "constant: 0 -> 1",
    ): "without a threshold nobody is tried again, and no schedule has one",
    (
        "ways.py",
        "not (emulated and packing.remembers and not self.waits),",
        "not dropped",
    ): "no schedule has error feedback on an emulated channel",
    (
        "core/rounds.py",
        "self._begun = False",
        "statement dropped",
    ): "it counts where senders hold back, on graphs that change; no schedule has one",
    (
        "node.py",
        "if not 0 <= index < len(shares):",
        "comparison: < -> <=",
    ): "it refuses a number that is none as a node is built; no schedule has one",
    (
        "core/own_beat.py",
        "pause_s = sending.links.period_s(receivers, bits) if core.settings.shared_medium else 0.0",
        "constant: 0.0 -> 1.0",
    ): "all nodes of the world share their medium",
    (
        "node.py",
        "return True",
        "constant: True -> False",
    ): "it is whether a slot took a gradient; in the world nobody asks",
    (
        "mailbox.py",
        "return True",
        "constant: True -> False",
    ): "it is whether a message was kept; in the world the reason is asked for instead",
}
"""Places that no schedule runs, or whose outcome none looks at: holes of the world, said here."""

EXCUSED: dict[tuple[str, str, str], str] = SAME | OUT_OF_REACH
