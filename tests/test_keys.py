"""Keys of many streams at once are those of each by itself."""

import jax
import numpy as np

from folkman.keys import Stream, make_key, make_keys, stream_keys


def test_keys_of_many_streams_are_those_of_one_at_a_time():
    streams = tuple(Stream)

    for seed in (0, 7, 2**32 - 1):
        key = jax.random.key(seed)
        roots, folded = make_keys(seed, *streams), stream_keys(key, *streams)
        for stream, root, fold in zip(streams, roots, folded, strict=True):
            one = jax.random.key_data(make_key(seed, stream))
            np.testing.assert_array_equal(jax.random.key_data(root), one)
            np.testing.assert_array_equal(
                jax.random.key_data(fold), jax.random.key_data(jax.random.fold_in(key, int(stream)))
            )
