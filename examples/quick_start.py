"""Quick start: encode an array at 4 bits a coordinate, look at its size and error, decode it."""

import numpy as np

import tersor

x = np.random.default_rng(0).standard_normal((1000, 1000)).astype(np.float32)

codec = tersor.Eden(bits=4)  # the same as tersor.get_codec("eden:4")
message = codec.encode(x, seed=7)  # same seed, same bytes
raw = message.to_bytes()  # what goes over the wire or to disk
x_hat = tersor.decode(tersor.from_bytes(raw))  # shape and dtype of x; the message names its codec

print(f"bytes        {x.nbytes:,} -> {len(raw):,}: {message.bits_per_coordinate:.3f} bits a coordinate")
print(f"vNMSE        {tersor.nmse(x, x_hat):.5f} measured")
print(f"             {message.error:.5f} known to the sender, {codec.expected_error():.5f} known before x was seen")
