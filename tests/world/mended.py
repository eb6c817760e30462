"""Schedules that once broke an invariant, made small, by the name of the bug that they showed."""

from folkman.runtime.world.plan import Fault, Plan

__all__ = ["MENDED"]

_PLAN = Plan(
    seed=0,
    method="rounds",
    nodes=3,
    slots=12,
    slot_s=1.0,
    steps=None,
    heal_s=7.2,
    end_s=17.2,
    liars=(),
    faults=(),
)

MENDED: dict[str, Plan] = {
    # The end of a receiver's time was computed in two ways that differ by a rounding: a core asked
    # for a Tick, found nothing due, and asked for the same instant again, without end.
    "a tick came a rounding error too early": _PLAN._replace(
        seed=109,
        method="alone",
        nodes=4,
        slots=16,
        slot_s=0.5,
        heal_s=4.8,
        end_s=14.8,
        faults=(
            Fault("partition", 1, 0.0, 4.8, 0.0, 3),
            Fault("flap", 2, 1.0144898919286283, 4.8, 0.0, 3),
            Fault("flap", 2, 1.8353532069549712, 4.8, 0.0, 1),
        ),
    ),
    # A message of a past round that was never taken was acknowledged as no longer needed. A node
    # that had lost its folder was so told for ever that it is heard.
    "a message of a past round was acknowledged though not held": _PLAN._replace(
        seed=32, nodes=5, liars=((0, "flood"),)
    ),
    # What had come early for the next round took the place of a later number of this round.
    "a round that began went back behind a number": _PLAN._replace(
        seed=74, nodes=4, liars=((3, "wrong_round"),)
    ),
    # A member was revoked while its message of this round was held. When it was a member again its
    # message was refused as a repeat, and acknowledged: the round never ended.
    "a forgotten member's message of this round was not taken again": _PLAN._replace(
        seed=52,
        faults=(
            Fault("full", 2, 3.1887436547991443, 7.199999999999999),
            Fault("revoke", 0, 4.057514561441363, 7.199999999999999),
        ),
    ),
    # A node that lost its folder in its first life began again as of its first life. Its neighbours
    # took it for the same life, acknowledged what they refused, and never told it to go on.
    "a folder lost in the first life was not noticed": _PLAN._replace(
        seed=262,
        method="alone",
        slots=20,
        heal_s=12.0,
        end_s=20.0,
        faults=(
            Fault("narrow", 2, 0.0, 12.0, 500.0, 1),
            Fault("lost", 2, 8.468923941052456, 12.0),
        ),
    ),
    # Two of three nodes began again, five slots behind the third. It waits for four at most, and so
    # waited for none: their clocks stayed apart for good.
    "a clock more than four slots ahead never waited": _PLAN._replace(
        seed=1414,
        method="emulated",
        slots=8,
        heal_s=4.8,
        end_s=20.8,
        faults=(
            Fault("cut", 0, 0.6530908649142889, 3.653090864914289),
            Fault("lost", 1, 1.1377440587092587, 4.8, 1.0),
        ),
    ),
    # While a node waited for the band its offer's origin was revoked and its copy forgotten. The
    # node then looked for the copy, and ended by an exception.
    "an offer of a copy that was forgotten meanwhile was carried out": _PLAN._replace(
        seed=11,
        method="forward",
        nodes=5,
        steps=6,
        heal_s=7.199999999999999,
        end_s=15.2,
        faults=(Fault("expire", 1, 1.058402560278815, 7.199999999999999),),
    ),
    # A node is linked before the number of its life is on disk. What it took until then it never
    # acknowledged, and whoever had sent it waited for the limit of a period.
    "what came before a life had begun was not acknowledged": _PLAN._replace(
        seed=248,
        method="alone",
        nodes=2,
        slots=8,
        steps=4,
        heal_s=4.8,
        end_s=12.8,
        faults=(
            Fault("slow", 1, 1.4939912892138902, 4.8, 100.0),
            Fault("asked", 1, 1.6461817944275368, 2.6461817944275365),
        ),
    ),
    # What a node says on a link that it has not noticed itself may be lost. It acknowledged what
    # came before, and whoever had sent that waited for the limit of a period.
    "an answer on a link that was not noticed yet was not given again": _PLAN._replace(
        seed=1349, method="alone", nodes=2, slots=5, steps=12, heal_s=0.2, end_s=8.2
    ),
    # A node lost its folder in its first life, and used numbers again. Its neighbours added a
    # change to the message that had had the number before.
    "a change was added to another message of the same number": _PLAN._replace(
        seed=589,
        method="feedback",
        slots=20,
        steps=20,
        heal_s=12.0,
        end_s=20.0,
        faults=(
            Fault("lost", 0, 1.9561658777466575, 11.956165877746658),
            Fault("asked", 2, 3.7264529623158102, 12.0),
            Fault("lost", 1, 3.864769558906864, 4.864769558906864),
        ),
    ),
    # A node lost its folder, and began its count at a lower number. The one word that told it so
    # was said on a link that was not noticed yet, and was lost. Nobody heard the node any more.
    "a node that lost its count was told so once, in vain": _PLAN._replace(
        seed=39,
        method="feedback",
        nodes=2,
        slots=8,
        heal_s=4.8,
        end_s=12.8,
        faults=(
            Fault("lost", 0, 0.14969407860350328, 4.8, 1.0),
            Fault("expire", 0, 0.651014444179109, 4.8),
        ),
    ),
    # Nodes waited for the limit of a start, and again for that of an end, for a neighbour that was
    # no member any more.
    "a start waited for one that was revoked": _PLAN._replace(
        seed=654,
        slots=6,
        slot_s=0.5,
        heal_s=1.8,
        end_s=9.8,
        faults=(Fault("revoke", 0, 0.0, 1.8),),
    ),
    "an end waited for one that was revoked": _PLAN._replace(
        seed=632,
        method="emulated",
        slots=8,
        steps=4,
        heal_s=20.0,
        end_s=20.8,
        faults=(Fault("revoke", 0, 0.0, 20.0),),
    ),
    # A node that had fallen behind carried parts of later slots than its own. Neighbours refused
    # such a sum without an answer, and everything that it sent afterwards waited behind it.
    "a sum was ahead of the node that carried it": _PLAN._replace(
        seed=3047458,
        method="band_sum",
        nodes=4,
        slots=20,
        slot_s=0.5,
        steps=20,
        heal_s=6.0,
        end_s=18.0,
        faults=(Fault("cut", 1, 2.567465768388455, 6.0),),
    ),
    # A node ended with its last message on disk, and a power cut took the one before it from the
    # outbox. A neighbour that was a round behind waited for that one for ever.
    "the message before the last was lost at the end of a run": _PLAN._replace(
        seed=3047626,
        slots=8,
        steps=4,
        heal_s=4.8,
        end_s=28.8,
        faults=(
            Fault("cut", 1, 2.450545487227608, 4.8, 1.0),
            Fault("partition", 1, 3.1323988289207567, 4.8, 0.0, 2),
        ),
    ),
    # A node that lost its state lived early slots again, in a new life. Copies were compared by
    # slots alone: the others offered its old ones, a hundred times a second, and took no new one.
    "copies of an earlier life were offered without end": _PLAN._replace(
        seed=4012669,
        method="forward",
        nodes=5,
        slots=20,
        heal_s=12.0,
        end_s=20.0,
        faults=(Fault("lost", 1, 9.262836402386622, 12.0, 1.0),),
    ),
    # safetensors writes the metadata of a file in an order that differs from call to call. A bit
    # that was flipped in it damaged another word each time.
    "the same state was saved as other bytes": _PLAN._replace(
        seed=4005250,
        method="server",
        nodes=2,
        slots=10,
        heal_s=5.199999999999999,
        end_s=13.2,
        faults=(Fault("flip", 0, 3.5814971589825215, 4.581497158982522),),
    ),
    # The world called a core at a time that the core had asked for before its clock stood still.
    "a tick came half a second early after a sleep": _PLAN._replace(
        seed=3030673,
        method="alone",
        slot_s=0.5,
        heal_s=3.5999999999999996,
        end_s=11.6,
        faults=(
            Fault("narrow", 0, 0.0, 3.5999999999999996, 4000.0, 2),
            Fault("slow_gradients", 2, 1.3608688516358807, 3.5999999999999996, 20.0),
            Fault("lost", 0, 1.7538355470987639, 3.253835547098764),
            Fault("suspend", 2, 2.1691944082324595, 2.6691944082324595),
        ),
    ),
    # A copy that was asked for goes out beside the outbox, under a higher number. Its answer passed
    # over a sum that waited there, which was then sent after all, behind newer ones.
    "an answer to a copy passed over a sum that had not been sent": _PLAN._replace(
        seed=842,
        method="band_sum",
        steps=12,
        end_s=23.2,
        faults=(Fault("lost", 0, 2.7795840153739597, 7.199999999999999),),
        on_grid=True,
    ),
    # A node was suspended while it stayed for its neighbours' last words. Its clock stood still
    # meanwhile, and invariant 22 went by the world's.
    "a node that slept was said to stay too long": _PLAN._replace(
        seed=2003428,
        method="emulated",
        steps=6,
        end_s=23.2,
        liars=((2, "old_life"),),
        faults=(
            Fault("suspend", 0, 1.736952407641074, 2.7369524076410743),
            Fault("suspend", 0, 2.0422015061151635, 7.199999999999999),
            Fault("suspend", 1, 5.737724625261486, 7.199999999999999),
        ),
    ),
    # A node that began again was asked to stop before the full disk had taken the number of its
    # life. It said that no step was saved, though it had just read one.
    "a state that was read was not said to be saved": _PLAN._replace(
        seed=2009441,
        nodes=2,
        steps=12,
        end_s=39.2,
        faults=(
            Fault("full", 0, 1.7748085791221102, 7.199999999999999),
            Fault("cut", 0, 2.3735841844342906, 3.3735841844342906),
            Fault("asked", 0, 3.506829825815768, 4.5068298258157675),
        ),
    ),
    # A fault had flipped a bit of the result. Invariant 30 cut a later save, before the result was
    # written anew, and took the rot for its own doing.
    "a result that was damaged before was held against a cut": _PLAN._replace(
        seed=2007768,
        method="emulated",
        nodes=2,
        slots=6,
        slot_s=0.5,
        steps=3,
        heal_s=1.7999999999999998,
        end_s=13.8,
        faults=(
            Fault("jump", 1, 0.2786651563882939, 1.778665156388294, 2592000.0),
            Fault("flip", 0, 0.29637191899317145, 1.7999999999999998, 1.0),
        ),
    ),
    # Two faults that slow a node's gradients ended at once, and its gradient ten seconds later:
    # each put the time until its own end on top of the other's.
    "a gradient went on long after what had slowed it": _PLAN._replace(
        seed=2014029,
        method="alone",
        slots=20,
        steps=20,
        heal_s=12.0,
        end_s=20.0,
        faults=(
            Fault("flap", 0, 0.0, 12.0, 0.0, 1),
            Fault("slow_gradients", 2, 1.5275070723171316, 12.0, 20.0),
            Fault("slow_gradients", 2, 2.1773747082893338, 12.0, 2.0),
        ),
    ),
    # An offer waited for its turn, and meanwhile the link of its slowest receiver went. The band
    # was claimed for as long as that one would have taken.
    "a claim was for one that had gone": _PLAN._replace(
        seed=2001628,
        method="sum",
        end_s=15.2,
        faults=(Fault("partition", 1, 3.173308712497527, 7.199999999999999, 0.0, 2),),
    ),
    # A liar's word of a later life came while a node wrote its last state. When that was written,
    # the node ended, and then began to write the number of another life.
    "a save was begun behind the end": _PLAN._replace(
        seed=2007245,
        method="forward",
        nodes=4,
        slots=20,
        slot_s=0.5,
        steps=20,
        heal_s=6.0,
        end_s=14.0,
        liars=((3, "acknowledges_all"),),
        faults=(
            Fault("cut", 2, 0.8847232142994828, 6.0, 1.0),
            Fault("kill", 3, 1.6153332691046454, 2.1487703784303873),
            Fault("cut", 3, 3.3934569668571184, 3.8934569668571184),
        ),
    ),
    # Links were measured to be faster while an offer waited for its turn. The band was claimed for
    # as long as had been thought before.
    "a claim was for as long as links once took": _PLAN._replace(
        seed=2010270,
        method="forward",
        nodes=4,
        slots=20,
        steps=20,
        heal_s=12.0,
        end_s=20.0,
        faults=(
            Fault("suspend", 2, 1.8153374449352597, 12.0),
            Fault("flap", 2, 7.5017230593100805, 12.0, 0.0, 3),
            Fault("kill", 3, 8.349812280453289, 9.349812280453289),
        ),
    ),
    # A node told a neighbour of its life as it refused a message. Invariant 31 had noted only what
    # was said in answer to words, and asked for the same within the second.
    "what was told in answer to a message was asked for again": _PLAN._replace(
        seed=2038,
        method="alone",
        slots=20,
        steps=10,
        heal_s=12.0,
        end_s=20.0,
        liars=((2, "old_life"),),
        faults=(
            Fault("flap", 2, 0.024433468215156042, 12.0, 0.0, 1),
            Fault("revoke", 2, 0.40256674295254236, 1.4025667429525424),
            Fault("lost", 0, 6.845366542117688, 9.845366542117688, 1.0),
        ),
    ),
    # A node was away while its neighbours passed the proof against a liar round. It went on to
    # offer them the liar's copies, which they refused for ever without saying why.
    "one that was away was never shown the proof": _PLAN._replace(
        seed=3016980,
        method="forward",
        nodes=4,
        slots=6,
        slot_s=0.5,
        heal_s=1.4,
        end_s=9.4,
        liars=((3, "equivocation"),),
        faults=(Fault("kill", 0, 0.8558868201372343, 0.9359097595847852),),
    ),
    # A neighbour told of a later life just before a slot ended. The disk was writing its number as
    # the state was due, and the state was not saved until another slot had been lived.
    "a state was saved a slot late on a band": _PLAN._replace(
        seed=3025847,
        method="band_sum",
        slots=6,
        slot_s=0.5,
        heal_s=1.7999999999999998,
        end_s=13.8,
        liars=((0, "acknowledges_all"),),
        faults=(
            Fault("failing", 1, 0.027197838601428135, 0.5271978386014281),
            Fault("damaged_list", 2, 0.03116881123114389, 1.7999999999999998),
            Fault("failing", 1, 0.19583305318214544, 1.7999999999999998),
        ),
    ),
    # The same on the emulated channel.
    "a state was saved a slot late": _PLAN._replace(
        seed=3028855,
        method="emulated",
        nodes=5,
        slot_s=0.5,
        steps=12,
        heal_s=3.5999999999999996,
        end_s=15.6,
        liars=((0, "old_life"),),
        faults=(
            Fault("revoke", 2, 0.5041926794242734, 1.0041926794242735),
            Fault("cut", 1, 0.6569139410004494, 2.1569139410004494),
            Fault("revoke", 0, 0.9246667318080224, 3.5999999999999996),
            Fault("cut", 4, 1.729510560487709, 3.5999999999999996, 1.0),
            Fault("revoke", 4, 1.9725600079267753, 3.5999999999999996),
        ),
    ),
    # A liar acknowledged the server's first answer, which was lost on its way to it. It waited for
    # that answer, the server for the liar, and the others for the server.
    "a server was waited for that waits for a liar": _PLAN._replace(
        seed=3003183,
        method="server",
        nodes=2,
        slots=20,
        slot_s=0.5,
        steps=20,
        heal_s=6.0,
        end_s=34.0,
        liars=((1, "acknowledges_all"),),
        faults=(Fault("loss", 4294967295, 0.0, 6.0, 0.9, 1),),
    ),
    # Three times in a row a liar's message of a round was not finite. Its neighbour waited for it,
    # and all others for that one.
    "a round was waited for in which poison was not finite": _PLAN._replace(
        seed=3021887,
        nodes=4,
        slots=8,
        heal_s=4.8,
        end_s=12.8,
        liars=((3, "poison"),),
        faults=(Fault("asked", 3, 0.4679710394363737, 4.8),),
    ),
    # The message before the last waited behind one whose answer was refused. Then the run ended
    # and the state was saved with both. Invariant 2 looked at the last of them alone.
    "a message that was saved beside the last was said to be lost": _PLAN._replace(
        seed=5100165,
        nodes=2,
        slots=6,
        slot_s=0.5,
        steps=3,
        heal_s=1.7999999999999998,
        end_s=15.8,
        faults=(
            Fault("kill", 0, 0.20341533089825112, 0.4079651289817011),
            Fault("lost", 0, 0.8027020464017827, 1.7999999999999998, 1.0),
        ),
    ),
}
