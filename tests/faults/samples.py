"""Small messages and bundles of every codec, as the raw material of the tests of damaged and forged bytes."""

from dataclasses import replace

import numpy as np

import tersor

SPECS = [
    "none",
    "fp16",
    "bf16",
    "int8",
    "int8:8",
    "int4",
    "int4:8,scale_dtype=float16",
    "mxfp8:e5m2",
    "mxfp6",
    "mxfp4",
    "mxint8",
    "eden:1",
    "eden:3",
    "eden:4,scale_dtype=float16",
    "eden:2,block=32,store_norm=true",
    "eden:8,rotations=2",
    "eden:5,block=full",
    "eden:2.5",
    "eden:0.4,block=32",
    "drive",
    "quicfl:1",
    "quicfl:3,block=32",
    "drive,plus=true",
    "eden:2,grid=uniform",
    "sq:1",
    "topk:0.3",
    "randk:0.4,values=bfloat16",
    "sq:5",
    "permk:3",
    "qsgd:3",
    "natural",
    "sign",
    "terngrad:8",
    "terngrad",
    "kashin:2",
    "turboquant:3",
    "turboquant:3,kind=prod,block=32",
    "turboquant:1,kind=prod,block=64",
    "sq:2,dither=subtractive",
    "sq:4,rotations=2",
    "sq:3,dither=subtractive,rotations=1",
    "ecuq:2",
    "ecuq:9,block=65536",
    "ecasq:2",
    "ecasq:3,block=65536,max_levels=9",
    "asq:2",
    "asq:2,shared=3",
    "asq:3,block=32,level_dtype=uint16",
    "asq:2,block=8,level_dtype=uint8",
    "kmeans:2",
    "thc:1",
    "thc:3,block=32",
    "thc:4,granularity=30,rotations=1",
]


def messages():
    """Raw messages: vectors, rows, scalars, empty ones, with counts, lost units, shared statistics, every dtype."""
    rng = np.random.default_rng(0)
    made = []
    for spec in SPECS:
        codec = tersor.get_codec(spec)
        for shape, axis, dtype in (
            ((70,), None, "float32"),
            ((3, 10), -1, "float32"),
            ((2, 2, 9), -1, "float16"),
            ((), None, "float64"),
            ((0, 3), -1, "float32"),
        ):
            x = rng.standard_normal(shape).astype(dtype)
            enc = codec.encode(x, seed=5, axis=axis)
            made.append(enc)
            if enc.units.count > 1:
                made.append(replace(enc, received=np.arange(enc.units.count) % 2 == 0))
    for spec in ("sq:3", "thc:3"):
        codec = tersor.get_codec(spec)
        x = rng.standard_normal((4, 6)).astype(np.float32)
        shared = codec.merge(codec.measure(x, axis=-1)[None], key=3)
        a, b = (codec.encode(x, seed=s, shared=shared, axis=-1) for s in (1, 2))
        made += [codec.add(a, b), codec.add(replace(a, received=np.arange(4) > 1), b)]
    codec = tersor.get_codec("thc:2,sum_bits=3")
    shared = codec.merge(codec.measure(x)[None], key=3)
    made.append(codec.add_all([codec.encode(x, seed=s, shared=shared) for s in range(5)]))
    return [enc.to_bytes() for enc in made]


def bundles():
    """Raw bundles: empty, one tensor, several of several codecs, rows, own keys."""
    rng = np.random.default_rng(1)
    x = {f"layer.{i}": rng.standard_normal((3, i)).astype(np.float32) for i in range(4)}
    mixed = tersor.EncodedDict(
        {
            k: tersor.get_codec(s).encode(v, seed=i, axis=-1)
            for i, (s, (k, v)) in enumerate(zip(SPECS[4:], x.items(), strict=False))
        },
        9,
    )
    return [
        tersor.encode_dict({}, "none", seed=1).to_bytes(),
        tersor.encode_dict({"a": np.ones(5, np.float32)}, "sq:2", seed=1).to_bytes(),
        tersor.encode_dict(x, "eden:2", {"*.1": "fp16", "*.2": "int8"}, seed=1).to_bytes(),
        mixed.to_bytes(),
    ]


def parse(raw):
    """Read as what the magic number says."""
    if bytes(raw[:4]) == b"TERD":
        return tersor.EncodedDict.from_bytes(raw)
    return tersor.from_bytes(raw)
