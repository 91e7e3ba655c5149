"""Writes the golden messages: run `python tests/golden/make.py` when version 0 of the format changes on purpose.

Version 0 may change until training, KV caches and vector search have landed (FORMAT.md); from version 1 on these files
are never written again, only added to. The inputs come from integers alone: no random generator is part of them.
"""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np

import tersor

HERE = Path(__file__).parent
# One vector of 300 and five rows of 33 with each of these.
SPECS = [
    "int4",
    "mxfp8",
    "mxfp6:e3m2",
    "mxfp4",
    "mxfp4,rounding=stochastic,scale_rounding=up",
    "mxint8",
    "eden:2.5",
    "eden:0.5,scale=biased",
    "eden:2,grid=uniform",
    "drive,plus=true",
    "quicfl:1",
    "quicfl:2",
    "quicfl:3",
    "quicfl:4",
    "turboquant:3",
    "turboquant:3,block=64,kind=prod",
    "kashin:2",
    "sq:3",
    "sq:3,dither=subtractive",
    "sq:3,rotations=2",
    "qsgd:4",
    "natural",
    "terngrad",
    "sign",
    "topk:0.1",
    "randk:0.1",
    "permk:3",
    "ecuq:3",
    "ecuq:8.5",
    "ecasq:2.5",
    "asq:3",
    "asq:2,block=64,level_dtype=uint8",
    "kmeans:3",
    "asq:2,shared=3",
    "thc:3",
    "thc:4,granularity=30,block=64",
]


def values(n):
    """n float32 numbers between -1.5 and 1.5, exact in binary: a quadratic sequence modulo 3071."""
    i = np.arange(n, dtype=np.int64)
    return ((i * i * 7 + 13 * i + 5) % 3071 - 1535).astype(np.float32) / np.float32(1024)


@cache
def messages():
    """The golden messages by name."""
    x, rows = values(4096 + 80), values(5 * 33).reshape(5, 33)
    sq = tersor.get_codec("sq:4")
    shared = sq.merge(np.stack([sq.measure(rows), sq.measure(-rows)]), key=0x0123456789ABCDEF)
    a, b = (sq.encode(v, seed=k, sender=k, shared=shared) for k, v in enumerate((rows, -rows)))
    thc = tersor.get_codec("thc:4")
    agreed = thc.merge(np.stack([thc.measure(v) for v in (x, -x / 2)]), key=0x0123456789ABCDEF)
    c, d = (thc.encode(v, seed=k, sender=k, shared=agreed) for k, v in enumerate((x, -x / 2)))
    options = {"seed": 0xFEDCBA9876543210, "sender": 3}
    made = {
        "eden4-vector": tersor.Eden(bits=4).encode(x, start=8192, **options),
        "eden2-rows": tersor.Eden(bits=2, scale="biased", scale_dtype="float16", store_norm=True).encode(
            rows, axis=-1, **options
        ),
        "eden5-full": tersor.Eden(bits=5, block="full").encode(values(300), **options),
        "eden3-blocks": tersor.Eden(bits=3, block=64, scale_dtype="bfloat16").encode(values(200), **options),
        "drive": tersor.Drive().encode(values(200), **options),
        "int8": tersor.Int8().encode(values(300), **options),
        "fp16": tersor.Float16().encode(values(20), **options),
        "bf16": tersor.BFloat16().encode(values(20).astype(np.float64), **options),
        "none": tersor.NoCompression().encode(values(20).astype(np.float16).reshape(4, 5), axis=-1, **options),
        "sq4-sum": sq.add(a, b),
        "thc4-sum": thc.add(c, d),
        **{spec: tersor.get_codec(spec).encode(values(300), **options) for spec in SPECS},
        **{f"{spec}-rows": tersor.get_codec(spec).encode(rows, axis=-1, **options) for spec in SPECS},
    }
    raw = {name: enc.to_bytes() for name, enc in made.items()}
    raw["bundle"] = tersor.encode_dict(
        {"w": values(700).reshape(7, 100), "b": values(10), "": values(1)}, "eden:4", {"b": "fp16"}, seed=5
    ).to_bytes()
    return raw


def file_name(name):
    """A spec as the name of a file."""
    return re.sub(r"[^\w.]+", "-", name)


def decoded(raw):
    """Every array of a message or bundle, float64, flat."""
    if raw[:4] == b"TERD":
        return np.concatenate([v.reshape(-1) for v in tersor.EncodedDict.from_bytes(raw).decode().values()]).astype(
            np.float64
        )
    return np.asarray(tersor.decode(tersor.from_bytes(raw)), np.float64).reshape(-1)


if __name__ == "__main__":
    tersor.backend("reference")
    expected = {}
    for name, raw in messages().items():
        (HERE / f"{file_name(name)}.tersor").write_bytes(raw)
        out = decoded(raw)
        expected[name] = {
            "size": len(out),
            "sum": float(out.sum()),
            "norm": float(np.sqrt((out**2).sum())),
            "first": out[:4].tolist(),
        }
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
