"""Makes the test vectors of docs/protocol.md: fixed keys, fixed content, every byte of them."""

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from folkman.runtime import control
from folkman.runtime.codec import SERVER, Message, encode

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
RUN = 0x0123456789ABCDEF


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
