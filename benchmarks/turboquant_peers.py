"""EDEN against the TurboQuant packages of PyPI that run on a CPU: time, error and true bits, paired in one run.

Several of them claim the module name `turboquant`: each lives in a folder, and runs in a process, of its own.

    for p in bitpolar==0.3.3 turbo-quant-lite==0.1.1 turboquant-pro==1.9.1 turboquant-py==0.1.0 \
             turboquant-torch==0.4.0 turboquant==0.2.0 turboquant-vectors==0.3.0 fastvq==0.1.2; do
        pip install --no-deps --target peers/${p%%=*} $p
    done
    pip install scipy torch==2.13.0 numpy       # what some of them import
    python benchmarks/turboquant_peers.py peers
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Coder = tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], float]]  # encode, decode, bits of a message


def bitpolar(dim: int, bits: int) -> Coder:
    """One vector a call; a message is bytes."""
    coder = importlib.import_module("bitpolar").TurboQuantizer(dim=dim, bits=bits, projections=dim, seed=1)
    return (
        lambda x: [coder.encode(row) for row in x],
        lambda made: np.stack([coder.decode(m) for m in made]),
        lambda made: 8 * len(bytes(made[0])) * len(made),
    )


def turbo_quant_lite(dim: int, bits: int) -> Coder:
    coder = importlib.import_module("turbo_quant_lite").TurboQuant(dim, bits)
    return coder.encode_batch, lambda m: coder.decode_batch(*m), lambda m: len(m[1]) * (bits * dim + 32.0)


def turboquant_pro(dim: int, bits: int) -> Coder:
    coder = importlib.import_module("turboquant_pro").TurboQuantKV(head_dim=dim, bits=bits, use_gpu=False, seed=1)
    return (
        lambda x: coder.compress(x[None, None], packed=True),
        lambda m: coder.decompress(m)[0, 0],
        lambda m: 8.0 * (m.indices.nbytes + m.norms.nbytes),
    )


def turboquant_py(dim: int, bits: int) -> Coder:
    coder = importlib.import_module("turboquant").TurboQuant(dim, bits, mode="mse", seed=1)
    return coder.quantize, coder.dequantize, lambda m: len(m.norms) * (bits * dim + 32.0)


def turboquant_torch(dim: int, bits: int) -> Coder:
    torch = importlib.import_module("torch")
    coder = importlib.import_module("turboquant.mse_quantizer").TurboQuantMSE(dim, bits, seed=1)
    return (
        lambda x: coder.quantize(torch.from_numpy(x)),
        lambda m: coder.dequantize(m).numpy(),
        lambda m: m.norms.numel() * (bits * m.codes.shape[-1] + 32.0),
    )


def turboquant(dim: int, bits: int) -> Coder:
    """Version 0.2.0 calls what NumPy 2.4 no longer has under that name."""
    np.trapz = getattr(np, "trapz", np.trapezoid)
    torch = importlib.import_module("torch")
    coder = importlib.import_module("turboquant.core").TurboQuantMSE(dim, bits, device="cpu", seed=1)
    return (
        lambda x: coder.quantize(torch.from_numpy(x)),
        lambda m: coder.dequantize(*m).numpy(),
        lambda m: m[1].numel() * (bits * dim + 32.0),
    )


def turboquant_vectors(dim: int, bits: int) -> Coder:
    coder = importlib.import_module("turboquant_vectors.core").TurboQuantVectors(dim, bits, seed=1)
    return coder.compress, coder.decompress, lambda m: 8.0 * m.packed_memory_bytes


def fastvq(dim: int, bits: int) -> Coder:
    module = importlib.import_module("turboquant.turboquant")
    coder = module.TurboQuant(module.TurboQuantConfig(bit_width=bits, block_size=128))
    return coder.quantize, coder.dequantize, lambda m: 8.0 * len(coder._pack_quantized(m))


PEERS: dict[str, Callable[[int, int], Coder]] = {
    "bitpolar": bitpolar,
    "turbo-quant-lite": turbo_quant_lite,
    "turboquant-pro": turboquant_pro,
    "turboquant-py": turboquant_py,
    "turboquant-torch": turboquant_torch,
    "turboquant": turboquant,
    "turboquant-vectors": turboquant_vectors,
    "fastvq": fastvq,
}


def work(name: str, dim: int, bits: int, rows: int, repeats: int, rotations: str) -> dict[str, Any]:
    """Time a peer and tersor in turn; ratios are medians over the pairs."""
    import tersor

    tersor.set_num_threads(1)
    if "torch" in sys.modules or name in ("turboquant-torch", "turboquant"):
        importlib.import_module("torch").set_num_threads(1)
    x = np.random.default_rng(0).standard_normal((rows, dim)).astype(np.float32)
    codec = tersor.get_codec(f"eden:{bits},scale=biased,rotations={rotations}")
    encode, decode, size = PEERS[name](dim, bits)
    ours_out = np.empty_like(x)
    encode_ratios, decode_ratios = [], []
    for k in range(repeats + 1):
        marks = [time.perf_counter()]
        made = encode(x)
        marks.append(time.perf_counter())
        theirs = decode(made)
        marks.append(time.perf_counter())
        message = codec.encode(x, seed=k, axis=-1)
        marks.append(time.perf_counter())
        codec.decode(message, out=ours_out)
        marks.append(time.perf_counter())
        if k:  # the first pair warms up
            t = np.diff(marks)
            encode_ratios.append(t[0] / t[2])
            decode_ratios.append(t[1] / t[3])
    return {
        "peer": name,
        "dim": dim,
        "bits": bits,
        "error": tersor.nmse(x, np.asarray(theirs, np.float32).reshape(x.shape)),
        "tersor_error": tersor.nmse(x, ours_out),
        "true_bits": size(made) / x.size,
        "tersor_true_bits": message.bits_per_coordinate,
        "encode_ratio": statistics.median(encode_ratios),
        "decode_ratio": statistics.median(decode_ratios),
    }


def main() -> None:
    """Run every peer in a process of its own and print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peers", type=Path, help="folder with one folder a peer")
    parser.add_argument("--dims", default="128,768")
    parser.add_argument("--bits", default="2,4")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rotations", default="auto", help="of tersor; rows have two unless told otherwise, peers one")
    parser.add_argument("--names", default=",".join(PEERS), help="which of them")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    dims, widths = ([int(v) for v in text.split(",")] for text in (args.dims, args.bits))
    if args.worker:
        sys.path.insert(0, str(args.peers / args.worker))
        print(json.dumps(work(args.worker, dims[0], widths[0], args.rows, args.repeats, args.rotations)))
        return
    one_thread = {f"{lib}_NUM_THREADS": "1" for lib in ("OMP", "OPENBLAS", "MKL", "RAYON")}
    print(
        f"{'peer':20s} {'d':>5s} {'b':>2s} {'vNMSE':>9s} {'ours':>9s} {'bits':>7s} {'ours':>6s}"
        f" {'encode':>8s} {'decode':>8s}"
    )
    for name in args.names.split(","):
        for dim in dims:
            for bits in widths:
                command = [sys.executable, __file__, str(args.peers), "--worker", name, "--dims", str(dim)]
                command += [
                    "--bits",
                    str(bits),
                    "--rows",
                    str(args.rows),
                    "--repeats",
                    str(args.repeats),
                    "--rotations",
                    args.rotations,
                ]
                made = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **one_thread})
                if made.returncode:
                    print(f"{name:20s} {dim:5d} {bits:2d} {made.stderr.strip().splitlines()[-1][:90]}")
                    continue
                r = json.loads(made.stdout.splitlines()[-1])
                print(
                    f"{name:20s} {dim:5d} {bits:2d} {r['error']:9.5f} {r['tersor_error']:9.5f} {r['true_bits']:7.2f}"
                    f" {r['tersor_true_bits']:6.2f} {r['encode_ratio']:8.1f} {r['decode_ratio']:8.1f}"
                )


if __name__ == "__main__":
    main()
