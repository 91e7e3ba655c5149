"""A federated round: clients send their updates at 2 bits, some of it is lost, the server takes the weighted mean."""

from dataclasses import replace

import numpy as np

import tersor

CLIENTS, SIZE, LOSS = 20, 100_000, 0.1

rng = np.random.default_rng(0)
truth = rng.standard_normal(SIZE).astype(np.float32)
updates = [truth + rng.standard_normal(SIZE).astype(np.float32) for _ in range(CLIENTS)]
samples = rng.integers(100, 1000, CLIENTS)  # a client's weight is how much data it has

codec = tersor.get_codec("eden:2")
server, lossless = tersor.Mean(), tersor.Mean()
sent = 0
for client, update in enumerate(updates):
    # `sender` makes the clients' errors independent, so that they average out.
    message = codec.encode(update, seed=1, sender=client)
    sent += message.nbytes
    lossless.add(message, weight=samples[client])
    # A message is cut into blocks of 4,096 coordinates; each decodes without the others.
    arrived = rng.random(message.units.count) >= LOSS
    server.add(replace(message, received=arrived), weight=samples[client])

exact = np.average(updates, axis=0, weights=samples)
# The server's mean divides every block by the weight that arrived for it: what is missing costs accuracy, not bias.
bits = 8 * sent / (CLIENTS * SIZE)
print(f"uplink       {bits:.3f} bits a coordinate, {32 / bits:.1f} times less than float32")
print(f"one update   vNMSE {codec.expected_error():.4f}")
print(f"mean of {CLIENTS}   vNMSE {tersor.nmse(exact, lossless.value()):.4f}, all arrived")
print(f"             vNMSE {tersor.nmse(exact, server.value()):.4f}, {LOSS:.0%} of the blocks lost")
