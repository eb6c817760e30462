"""Makes the test vectors of docs/protocol.md: fixed keys, fixed content, every byte of them."""

import jax
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from folkman.packing import bfloat16, int8, qsgd, rand_k, sign, top_k, wire
from folkman.runtime import control, fresh_codec
from folkman.runtime.codec import SERVER, Base, Message, encode, encode_packed

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
RUN = 0x0123456789ABCDEF


PACKED = {
    "bfloat16": bfloat16(),
    "int8": int8(),
    "qsgd-3": qsgd(3),
    "sign": sign(),
    "top-k": top_k(0.5),
    "rand-k": rand_k(0.5),
}


def packed(message):
    """Return name -> bytes of a message of one model of 4 entries and one number more."""
    key = jax.random.key(0)
    bodies = {name: wire.write(packing, message.params, 4, key) for name, packing in PACKED.items()}
    on = message._replace(base=Base(message.sequence - 1, 4))
    return {
        **{
            name: encode_packed(message, PACKED[name].name, body, KEY.sign)
            for name, body in bodies.items()
        },
        "change": encode_packed(on, "top_k", bodies["top-k"], KEY.sign),
    }


STAMPS = np.array([0, (1 << 32) + 40, (1 << 32) + 39, (2 << 32) + 42])


def fresh(values, inner):
    """Return name -> bytes of messages of fresh air between four nodes."""
    plain = fresh_codec.Carried(RUN, 3, (2 << 32) + 18, 42, STAMPS)
    whole = np.array([0, 1, -2, 70_000])
    cover = plain._replace(node=1, sequence=(1 << 32) + 5, slot=43, inner=inner, round=6, size=4)
    made = {
        "sum": plain._replace(entries=values),
        "sum-whole": plain._replace(entries=whole, bits=18),
        "forward": cover,
    }
    return {name: fresh_codec.encode(each, KEY.sign) for name, each in made.items()}


def vectors():
    """Return name -> bytes."""
    values = np.array([0.0, 1.0, -2.5, 0.1], np.float32)
    plain = Message(RUN, 3, (2 << 32) + 17, 42, values)
    return {
        "public-key": PUBLIC,
        "float32": encode(plain, KEY.sign),
        "float16": encode(plain._replace(params=values.astype(np.float16)), KEY.sign),
        "lock-step": encode(plain._replace(round=9, node=0), KEY.sign),
        "server-unsigned": encode(plain._replace(node=SERVER, params=values[:1])),
        **packed(plain._replace(params=np.append(values, np.float32(7.0)))),
        **fresh(values, encode(plain, KEY.sign)),
        "hello": control.seal(
            control.Control(RUN, 3, (2 << 32) + 1, control.Hello(1.5, 40, 2)), KEY.sign
        ),
        "ack": control.seal(
            control.Control(RUN, 3, (2 << 32) + 2, control.Ack((2 << 32) + 17)), KEY.sign
        ),
        "period": control.seal(
            control.Control(RUN, 3, (2 << 32) + 3, control.Period(1e6, [0, 2])), KEY.sign
        ),
    }


if __name__ == "__main__":
    for name, data in vectors().items():
        print(f"{name} {data.hex()}")
