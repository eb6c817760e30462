"""Mutants of the runtime written by hand: (name, file, what is there, what takes its place)."""

CORE = "src/folkman/runtime/core/"
RUNTIME = "src/folkman/runtime/"

SEMANTIC: list[tuple[str, str, str, str]] = [
    # -- disk
    (
        "the bytes of a part are not synced",
        RUNTIME + "durable.py",
        "        disk.sync(part)\n",
        "        pass\n",
    ),
    (
        "the folder is not synced after a state",
        RUNTIME + "durable.py",
        "    disk.rename(part, STATE_FILE)\n    disk.sync_folder()\n",
        "    disk.rename(part, STATE_FILE)\n",
    ),
    (
        "the folder is not synced after a life",
        RUNTIME + "durable.py",
        'b"%d\\n" % life), name)\n    disk.sync_folder()\n',
        'b"%d\\n" % life), name)\n',
    ),
    (
        "a whole file is not followed by a sync of the folder",
        RUNTIME + "durable.py",
        "    disk.rename(_synced_part(disk, name, data), name)\n    disk.sync_folder()\n",
        "    disk.rename(_synced_part(disk, name, data), name)\n",
    ),
    (
        "a state is written in place",
        RUNTIME + "durable.py",
        '    part = f".{name}.part"\n',
        "    part = name\n",
    ),
    (
        "the digest of a state is not looked at",
        RUNTIME + "durable.py",
        "    if _digest(_with(data, place, NO_DIGEST)) != place[1]:\n",
        "    if False:\n",
    ),
    (
        "the older state is read first",
        RUNTIME + "durable.py",
        "    for name in (STATE_FILE, STATE_BEFORE_FILE):\n        data = disk.read(name)\n",
        "    for name in (STATE_BEFORE_FILE, STATE_FILE):\n        data = disk.read(name)\n",
    ),
    (
        "the newest state is removed before the next is in place",
        RUNTIME + "durable.py",
        "    disk.rename(part, STATE_FILE)\n",
        "    disk.remove(STATE_BEFORE_FILE)\n    disk.rename(part, STATE_FILE)\n",
    ),
    (
        "the life that is read is the lower of its copies",
        RUNTIME + "durable.py",
        "            life = max(life, int(data))\n",
        "            life = min(life or int(data), int(data))\n",
    ),
    (
        "a life is never read",
        RUNTIME + "durable.py",
        "            life = max(life, int(data))\n",
        "            pass\n",
    ),
    # -- life
    (
        "a life has the number of the one before",
        CORE + "life.py",
        "        self._next = 1 + max(event.life, spoken)\n",
        "        self._next = max(event.life, spoken, 1)\n",
    ),
    (
        "a life is not noted on disk before it begins",
        CORE + "life.py",
        "            self._ticket = saving.start(life=self._next)\n",
        "            self._ticket = saving.start(life=max(self._next - 1, 0))\n",
    ),
    (
        "the number of messages is not raised with the life",
        CORE + "life.py",
        "max(core.node.sequence, (self.number << LIFE_BITS) + count)",
        "core.node.sequence",
    ),
    (
        "a saved state is not taken up",
        CORE + "life.py",
        "            state.restore(core.node, event.state)\n",
        "            pass\n",
    ),
    (
        "a node does not believe that it has lost lives",
        CORE + "life.py",
        "        self._next = life + 1\n",
        "        self._next = self.number\n",
    ),
    (
        "a node goes on as of the life that is known",
        CORE + "life.py",
        "        self._next = life + 1\n",
        "        self._next = life\n",
    ),
    (
        "every life that is claimed is believed",
        CORE + "life.py",
        "<= life < MOST_BELIEVED:",
        "<= life:",
    ),
    (
        "control messages keep the number of the life before",
        CORE + "life.py",
        "            core.hands.voice.begin_life(self.number)\n",
        "            pass\n",
    ),
    # -- hearing
    (
        "what is taken is not acknowledged",
        CORE + "hearing.py",
        "            core.hands.tell(message.node, control.Ack(message.sequence))\n",
        "            pass\n",
    ),
    (
        "the message after the one taken is acknowledged",
        CORE + "hearing.py",
        "            core.hands.tell(message.node, control.Ack(message.sequence))\n",
        "            core.hands.tell(message.node, control.Ack(message.sequence + 1))\n",
    ),
    (
        "all that is refused is acknowledged",
        CORE + "hearing.py",
        "control.Refusal(error.sequence or 0, reason)",
        "control.Ack(error.sequence or 0)",
    ),
    (
        "stale messages are acknowledged whether held or not",
        CORE + "hearing.py",
        "        return sequence <= self._core.node.mailbox.newest_with_next_round(peer)\n",
        "        return True\n",
    ),
    (
        "a message is taken under another's number",
        CORE + "hearing.py",
        "            if len(data) >= 20 and sender_of(data) != peer:\n",
        "            if False:\n",
    ),
    (
        "a message of an earlier life is acknowledged",
        CORE + "hearing.py",
        "return not self._core.in_rounds and sequence >> LIFE_BITS < self._life_held(peer)\n",
        "return False\n",
    ),
    (
        "nobody is told of a life that it lost",
        CORE + "hearing.py",
        "            self._core.hands.tell(peer, control.Known(self._life_held(peer)))\n",
        "            pass\n",
    ),
    (
        "taken messages are not counted",
        CORE + "hearing.py",
        '        core.hands.counts["taken"] += 1\n',
        "        pass\n",
    ),
    (
        "taken messages are counted twice",
        CORE + "hearing.py",
        '        core.hands.counts["taken"] += 1\n',
        '        core.hands.counts["taken"] += 2\n',
    ),
    (
        "acknowledgements are not heeded",
        CORE + "hearing.py",
        "            core.sending.acknowledged(peer, body.sequence, now_s)\n",
        "            pass\n",
    ),
    (
        "a neighbour that began again is not sent to again",
        CORE + "hearing.py",
        "            core.sending.begun_again(peer, now_s)\n",
        "            pass\n",
    ),
    (
        "nobody is ever done",
        CORE + "hearing.py",
        "            self.done.add(peer)\n",
        "            pass\n",
    ),
    # -- mailbox
    (
        "a repeat is taken",
        RUNTIME + "mailbox.py",
        "        if message.sequence <= last or (",
        "        if message.sequence < last or (",
    ),
    (
        "old messages are taken",
        RUNTIME + "mailbox.py",
        "        if message.sequence <= last or (",
        "        if (",
    ),
    (
        "messages of past rounds are taken",
        RUNTIME + "mailbox.py",
        "(self.round and message.round < self.round):",
        "False:",
    ),
    (
        "two messages of a round are taken",
        RUNTIME + "mailbox.py",
        "        if taken or message.round > self.round + 1:\n",
        "        if message.round > self.round + 1:\n",
    ),
    (
        "messages of any later round are taken",
        RUNTIME + "mailbox.py",
        "        if taken or message.round > self.round + 1:\n",
        "        if taken:\n",
    ),
    (
        "a copy is kept without its number",
        RUNTIME + "mailbox.py",
        "        self.sequence[row] = self.newest[row] = message.sequence\n        self.slot",
        "        self.sequence[row] = message.sequence\n        self.slot",
    ),
    (
        "a number is kept without its copy",
        RUNTIME + "mailbox.py",
        "        self.payload[row] = message.params\n",
        "        pass\n",
    ),
    (
        "a forgotten member's copy stays",
        RUNTIME + "mailbox.py",
        "        self.payload[row], self.sequence[row], self.slot[row] = self._first, 0, 0\n",
        "        pass\n",
    ),
    (
        "a forgotten member's number is forgotten too",
        RUNTIME + "mailbox.py",
        "        self.payload[row], self.sequence[row], self.slot[row] = self._first, 0, 0\n",
        "        self.payload[row], self.sequence[row], self.slot[row] = self._first, 0, 0\n"
        "        self.newest[row] = 0\n",
    ),
    (
        "what came early is lost when its round begins",
        RUNTIME + "mailbox.py",
        "if message.sequence > self.newest[row]:  # else its sender has numbered rounds backwards",
        "if False:",
    ),
    (
        "a round that begins skips one",
        RUNTIME + "mailbox.py",
        "        self.round += 1\n        early",
        "        self.round += 2\n        early",
    ),
    (
        "parameters that are not finite are taken",
        RUNTIME + "codec.py",
        "    if not np.isfinite(params).all():\n        raise CodecError(\n"
        '            "finite", "expected finite',
        '    if False:\n        raise CodecError(\n            "finite", "expected finite',
    ),
    # -- sending
    (
        "the number of a message does not rise",
        RUNTIME + "node.py",
        "        self.sequence += 1\n",
        "        self.sequence += int(self.sequence % 4 != 3)\n",
    ),
    (
        "a receiver's time is never over",
        CORE + "owed.py",
        "        for peer in late:\n",
        "        for peer in ():\n",
    ),
    (
        "who lapses is waited for as before",
        CORE + "owed.py",
        "            record.lapses += 1\n",
        "            pass\n",
    ),
    (
        "every message waits for the longest time",
        CORE + "owed.py",
        "        return min(max(LATENCIES * usual_s, LEAST_PATIENCE_S), self._longest_s)\n",
        "        return 1e9\n",
    ),
    (
        "what one owes that is gone is waited for",
        CORE + "sending.py",
        "        self.owed.forget(peer)\n",
        "        pass\n",
    ),
    (
        "a broadcast does not wait for the share of the medium",
        CORE + "own_beat.py",
        "        self._due_s = now_s + min(pause_s, core.settings.period_timeout_s)\n",
        "        pass\n",
    ),
    (
        "an outbox never sends again",
        CORE + "sending.py",
        "if now_s - box.sent_s > after_s}",
        "if False}",
    ),
    (
        "an outbox skips what was not acknowledged",
        CORE + "sending.py",
        "        return self._sent(box, now_s) if not waits or len(box.messages) == 1 else None\n",
        "        box.acknowledged = sequence - 1\n        return self._sent(box, now_s)\n",
    ),
    (
        "nothing is sent again over a new link",
        CORE + "sending.py",
        '        """Send a neighbour that is there again what it may have missed."""\n'
        "        self._hands.publish(peer, self.outbox.again(peer, now_s))\n",
        '        """Send a neighbour that is there again what it may have missed."""\n',
    ),
    # -- rounds
    (
        "no save before send",
        CORE + "rounds.py",
        "        if not self._first.is_saved(core, here, now_s):\n            return False\n",
        "",
    ),
    (
        "a server does not save before it answers",
        CORE + "rounds.py",
        "        if not self._first.is_saved(core, node.slot, now_s):\n            return False\n",
        "",
    ),
    (
        "a save that failed counts",
        CORE + "rounds.py",
        "            found, self._ticket = saving.succeeded == self._ticket, None\n",
        "            found, self._ticket = True, None\n",
    ),
    (
        "the last message is not sent again after a restart",
        CORE + "rounds.py",
        "            self._push(core, node.last_sent, now_s)\n",
        "            pass\n",
    ),
    (
        "the last message is not saved",
        CORE + "rounds.py",
        "        node.last_sent, self._sent_at, self._saves = data, here, False\n",
        "        self._sent_at, self._saves = here, False\n",
    ),
    # -- members
    (
        "a lost forget",
        CORE + "core.py",
        '                self._forget(peer, "it is no longer a member")\n',
        "                pass\n",
    ),
    (
        "a list of members is not taken",
        CORE + "core.py",
        "        self.members, self._there = event.members, None\n",
        "        pass\n",
    ),
    # -- phases
    (
        "a gradient is used twice",
        CORE + "core.py",
        "            return\n        self._computing = None\n        node = self.node\n",
        "            return\n        node = self.node\n",
    ),
    (
        "the result is not written",
        CORE + "core.py",
        "            self._ticket = self.saving.start(with_state=True, final=final)\n",
        "            self._ticket = self.saving.start(with_state=True)\n",
    ),
    (
        "a refused result ends with 0",
        CORE + "core.py",
        "            self.code = self.code or (DISK if self.phase is Phase.WRITE else 0)\n",
        "            pass\n",
    ),
    (
        "a node does not wait for its save at the end",
        CORE + "core.py",
        "            if self._ticket is None:\n                self._end(now_s)\n",
        "            self._end(now_s)\n",
    ),
    (
        "a slot is not noted",
        CORE + "core.py",
        "self.hands.note(journal.WAKE, node.slot - 1, node.used.tolist(), computed=computed)\n",
        "pass\n",
    ),
    (
        "one slot too many is noted",
        CORE + "core.py",
        "self.hands.note(journal.WAKE, node.slot - 1, node.used.tolist(), computed=computed)\n",
        "self.hands.note(journal.WAKE, node.slot, node.used.tolist(), computed=computed)\n",
    ),
    (
        "two saves at a time",
        CORE + "saving.py",
        "        return self._under_way is None\n",
        "        return True\n",
    ),
    (
        "a save holds the counters of the step before",
        RUNTIME + "state.py",
        'getattr(node, "steps", 0), node.sequence, node.mailbox.round]',
        'max(getattr(node, "steps", 0) - 1, 0), node.sequence, node.mailbox.round]',
    ),
    (
        "a save leaves out what was sent",
        RUNTIME + "state.py",
        '    if getattr(node, "last_sent", b""):\n',
        "    if False:\n",
    ),
    (
        "a restored node has no sequence",
        RUNTIME + "state.py",
        "    node.slot, node.sequence, node.mailbox.round = slot, sequence, round_\n",
        "    node.slot, node.mailbox.round = slot, round_\n",
    ),
    (
        "a restored node begins with round one",
        RUNTIME + "state.py",
        "    node.slot, node.sequence, node.mailbox.round = slot, sequence, round_\n",
        "    node.slot, node.sequence = slot, sequence\n",
    ),
    # -- sums, copies that are passed on, error feedback
    (
        "a sum is adopted whether younger or not",
        RUNTIME + "sum_box.py",
        "        if self.younger(found.stamps):\n",
        "        if True:\n",
    ),
    (
        "a sum is adopted with the receiver's own old part in it",
        RUNTIME + "sum_box.py",
        "        self._put(self.parts.without(found.entries, own), found.stamps)\n",
        "        self._put(self.parts.without(found.entries, 0 * own), found.stamps)\n",
    ),
    (
        "the number of a carrier is not noted",
        RUNTIME + "sum_box.py",
        "        self.last[found.node] = found.sequence\n",
        "        pass\n",
    ),
    (
        "a sum is sent without the sender's own part",
        RUNTIME + "sum_box.py",
        "        return self.parts.on_air(self.others + self.past[stamp]), stamps\n",
        "        return self.parts.on_air(self.others), stamps\n",
    ),
    (
        "a forward is kept under its carrier",
        RUNTIME + "fresh_node.py",
        "        self.letters[origin] = found.inner\n",
        "        self.letters[found.node] = found.inner\n",
    ),
    (
        "what a revoked member said is still passed on",
        RUNTIME + "fresh_node.py",
        "        self.letters.pop(sender, None)\n",
        "        pass\n",
    ),
    (
        "an offer of a forgotten copy is carried out",
        CORE + "fresh_beat.py",
        "        elif offer is not None and self._is_held(core, offer):\n",
        "        elif offer is not None:\n",
    ),
    (
        "a node that carries sums never sends",
        CORE + "fresh_beat.py",
        "            self._consider(core, found, now_s)\n",
        "            pass\n",
    ),
    (
        "a change is taken whatever it builds on",
        RUNTIME + "mailbox.py",
        "        if self.sequence[row] != on or not self.finite[row]:\n",
        "        if False:\n",
    ),
    (
        "a change is taken for the whole",
        RUNTIME + "mailbox.py",
        "        params[:changed] += self.payload[row, :changed]\n",
        "        pass\n",
    ),
    (
        "a sender forgets what it left out",
        RUNTIME + "feedback.py",
        "        after = wanted - sent if self.adds else seen\n",
        "        after = wanted - sent if self.adds else model\n",
    ),
    (
        "a new life builds on messages of the one before",
        CORE + "life.py",
        "                core.node.forget_receivers()\n",
        "                pass\n",
    ),
    # -- clocks and health
    (
        "any neighbour's clock is followed",
        RUNTIME + "control.py",
        "        middle = sorted(said)[(len(said) - 1) // 2]  # of two the one that is ahead\n",
        "        middle = min(said)\n",
    ),
    (
        "no neighbour's clock is followed",
        RUNTIME + "control.py",
        "        self._origin_s += min(middle - self._origin_s, MOST_BEHIND * self.slot_s)\n",
        "        pass\n",
    ),
    (
        "control messages are heard twice",
        RUNTIME + "control.py",
        "        if message.sequence <= self._heard.get(peer, -1):\n",
        "        if False:\n",
    ),
    (
        "control messages have all the same number",
        RUNTIME + "control.py",
        "        self._sequence += 1\n        return seal(",
        "        return seal(",
    ),
    (
        "a node that does nothing is well",
        CORE + "health.py",
        '            return f"no slot was lived for {still_s:.0f} s"\n',
        '            return ""\n',
    ),
    # -- what came before a life had begun
    (
        "what came before a life had begun is not answered",
        CORE + "hands.py",
        "        for (peer, _), body in answers.items():\n            self.tell(peer, body)\n",
        "        del answers\n",
    ),
    (
        "one that was forgotten before a life had begun is answered",
        CORE + "core.py",
        "        self.hands.owe_no_answer(peer)\n",
        "",
    ),
]
