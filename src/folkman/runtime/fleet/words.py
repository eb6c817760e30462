"""What an operator and a node say to each other: five questions, their answers, and the frames.

    length u32, little-endian; then one MessagePack map with `type`

    status                       standing    the node's facts, as in its health file
    logs                         lines       of its log, from a number on
    stop                         stopping    it saves and ends
    hold                         held        the files of its folder as they are now, with digests
    read                         part        of a held file
                                 refused     why not, in a word and a sentence

Each question gets one answer, in order. The version of these words is the protocol's name in TLS
(ALPN), so that two versions part at the handshake. Both sides are strict: unknown types and keys,
and sizes beyond the limits, end the connection.
"""

import struct
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from folkman.record.json_file import Json

__all__ = ["LEVELS", "PROTOCOL", "Answer", "Held", "HeldFile", "Hold", "Level", "Lines", "Logs"]
__all__ += ["Part", "Question", "Read", "Refused", "Standing", "Status", "Stop", "Stopping"]
__all__ += ["WordsError", "answer_of", "frame", "length_of", "question_of"]

PROTOCOL = "folkman-operator/1"
MOST_QUESTION_BYTES, MOST_ANSWER_BYTES = 4096, 1 << 20
PART_BYTES = 1 << 18
"""Of a file, in one answer."""
MOST_LINES, MOST_LINES_BYTES = 1000, 1 << 19
"""Of the log, in one answer."""
LEVELS = ("debug", "info", "warning", "error")
Level: TypeAlias = Literal["debug", "info", "warning", "error"]

_LENGTH = struct.Struct("<I")
HEAD_BYTES = _LENGTH.size
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**62)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z.]{0,63}$")]
_Digest: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
_Token: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]


class WordsError(ValueError):
    """Bytes that are none of these words."""


class _Word(msgspec.Struct, forbid_unknown_fields=True, tag_field="type"):
    """What all words have in common."""


class Status(_Word, tag="status"):
    """Ask how the node stands."""


class Logs(_Word, tag="logs"):
    """Ask for lines of the log: from a number on, of a time or later, of a level or above."""

    after: _Count = 0
    since_s: float = 0.0
    level: Level = "debug"


class Stop(_Word, tag="stop"):
    """Ask the node to save and end."""


class Hold(_Word, tag="hold"):
    """Ask for the files as they are now; they are held for a while, in place of those before."""


class Read(_Word, tag="read"):
    """Ask for a part of a held file."""

    held: _Token
    name: _Name
    offset: _Count
    length: Annotated[int, msgspec.Meta(ge=1, le=PART_BYTES)]


class Standing(_Word, tag="standing"):
    """How a node stands."""

    facts: Json


class Lines(_Word, tag="lines"):
    """Lines of a log; the next question asks from `next` on, if `life` is still the same."""

    life: _Token
    lines: list[str]
    next: _Count
    left_out: _Count  # older lines that were asked for and are kept no longer


class Stopping(_Word, tag="stopping"):
    """The node saves and ends."""


class HeldFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file as it was when it was held."""

    name: _Name
    size: _Count
    sha256: _Digest


class Held(_Word, tag="held"):
    """The files of a node; `run` is the fingerprint of what it learns."""

    held: _Token
    run: _Digest
    label: str
    seed: _Count
    files: list[HeldFile]


class Part(_Word, tag="part"):
    """A part of a file."""

    data: bytes


class Refused(_Word, tag="refused"):
    """Why a question has no other answer."""

    reason: str
    text: str


Question: TypeAlias = Status | Logs | Stop | Hold | Read
Answer: TypeAlias = Standing | Lines | Stopping | Held | Part | Refused

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Question)
_answers: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Answer)


def frame(word: Question | Answer) -> bytes:
    """Return a word as it goes over the line."""
    content = _encoder.encode(word)
    return _LENGTH.pack(len(content)) + content


def length_of(head: bytes, most: int) -> int:
    """Return how long the word behind a head is, or refuse one that is too long or empty."""
    (length,) = _LENGTH.unpack(head)
    if not 0 < length <= most:
        raise WordsError(f"expected a word of 1 to {most} bytes, got {length}")
    return length


def question_of(content: bytes) -> Question:
    """Return the question in bytes of an operator."""
    return _decoded(_questions, content)


def answer_of(content: bytes) -> Answer:
    """Return the answer in bytes of a node."""
    return _decoded(_answers, content)


def _decoded(decoder: "msgspec.msgpack.Decoder[Any]", content: bytes) -> Any:
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WordsError(f"expected a word of {PROTOCOL}: {error}") from None
