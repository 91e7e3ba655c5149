"""Fuzzes the parsers of messages and bundles, and the decoders behind them, with atheris (coverage-guided).

Usage: parsers.py -runs=N [libFuzzer options]. The checksum and the size field are made right before every execution, so
that what is tested is behind them: FormatError, or a tensor of the shape that the header gives; never anything else.
"""

import random
import struct
import sys
import tempfile
import warnings
import zlib
from pathlib import Path
from types import FunctionType, ModuleType

import atheris
import numpy as np

import tersor

sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
import samples
import test_forged

ORIGINALS = test_forged.MESSAGES + test_forged.BUNDLES
LIMIT = 1 << 16  # coordinates of a tensor that is worth decoding here


def repair(data: bytes) -> bytes:
    """Right magic number, size and checksum; the rest is the fuzzer's."""
    raw = bytearray(data[:4096])
    if len(raw) < 24:
        return bytes(raw)
    raw[:4] = b"TERD" if raw[3] == ord("D") else b"TERS"
    struct.pack_into("<Q", raw, 16, len(raw))
    struct.pack_into("<I", raw, 8, zlib.crc32(raw[12:], zlib.crc32(raw[:8])))
    return bytes(raw)


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Half libFuzzer's own mutations, half forgeries that know the fields."""
    rng = random.Random(seed)
    if rng.random() < 0.5 and len(data) >= 64:
        return test_forged.forge(rng, data)[:max_size]
    return bytes(atheris.Mutate(data, max_size))


def instrument(module: ModuleType) -> None:
    """Make the functions and methods of a module count for coverage."""
    owners = [module, *(c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__)]
    for owner in owners:
        for value in list(vars(owner).values()):
            if isinstance(value, FunctionType) and value.__module__ == module.__name__:
                atheris.instrument_func(value)


def one_input(data: bytes) -> None:
    raw = repair(data)
    try:
        parsed = samples.parse(raw)
    except tersor.FormatError:
        return
    for enc in parsed.values() if isinstance(parsed, tersor.EncodedDict) else [parsed]:
        if enc.size <= LIMIT:
            test_forged.use(enc)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    with tempfile.TemporaryDirectory() as corpus:
        for i, raw in enumerate(ORIGINALS):
            (Path(corpus) / f"{i:03}").write_bytes(raw)
        for name, module in list(sys.modules.items()):  # import hooks do not see an editable install
            if name.split(".")[0] == "tersor":
                instrument(module)
        atheris.Setup([*sys.argv, "-max_len=4096", "-timeout=30", corpus], one_input, custom_mutator=mutate)
        atheris.Fuzz()
