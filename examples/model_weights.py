"""A model's weights in a file at 4 bits, with the small tensors kept at 16, and one layer read back."""

import tempfile
from pathlib import Path

import numpy as np

import tersor

rng = np.random.default_rng(0)
weights = {}
for layer in range(4):
    weights[f"layers.{layer}.weight"] = (rng.standard_normal((512, 512)) / 512**0.5).astype(np.float32)
    weights[f"layers.{layer}.bias"] = (0.01 * rng.standard_normal(512)).astype(np.float32)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "model.safetensors"
    # "biased" has the least error for one use; "unbiased", the default, is for means of many.
    # The first pattern that matches a name chooses the codec. Torch tensors work as well: model.state_dict().
    tersor.save(path, weights, "eden:4,scale=biased", policy={"*.bias": "fp16"}, seed=0)
    before = sum(w.nbytes for w in weights.values())
    print(f"{before:,} -> {path.stat().st_size:,} bytes, {before / path.stat().st_size:.2f} times smaller")

    with tersor.open(path) as file:  # lazy: only what is asked for is read
        for name in ("layers.2.weight", "layers.2.bias"):
            error = tersor.nmse(weights[name], file.decode(name))
            print(f"{name:16} {file[name].spec:19} {file[name].bits_per_coordinate:6.3f} bits  vNMSE {error:.2e}")
