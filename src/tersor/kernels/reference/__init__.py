"""The readable NumPy backend: every operation in exact float32 order, the oracle of all others."""

from tersor.kernels.reference.bits import pack, unpack
from tersor.kernels.reference.dither import dither_decode, dither_encode
from tersor.kernels.reference.draws import draw_table
from tersor.kernels.reference.drive_plus import drive_plus_encode
from tersor.kernels.reference.dynamiq import dynamiq_decode, dynamiq_hop, dynamiq_stats
from tersor.kernels.reference.eden import eden_add, eden_decode, eden_encode
from tersor.kernels.reference.entropy import coded_path, entropy_costs, joint_path, pair_path
from tersor.kernels.reference.hadamard import fwht, rotate
from tersor.kernels.reference.half import first_nonfinite, half_decode, half_encode
from tersor.kernels.reference.int4 import int4_decode, int4_encode
from tersor.kernels.reference.int8 import int8_decode, int8_encode
from tersor.kernels.reference.key_histogram import key_gather, key_histogram
from tersor.kernels.reference.level_codes import levels_decode, levels_encode
from tersor.kernels.reference.level_rows import optimal_rows
from tersor.kernels.reference.level_search import optimal_path
from tersor.kernels.reference.logarithm import log2
from tersor.kernels.reference.microscaling import mx_decode, mx_encode
from tersor.kernels.reference.quicfl import quicfl_add, quicfl_decode, quicfl_encode
from tersor.kernels.reference.random import philox
from tersor.kernels.reference.rans import count_symbols, rans_decode, rans_encode
from tersor.kernels.reference.rotated import rotate_units, unrotate_units
from tersor.kernels.reference.shared_codes import shared_decode, shared_encode
from tersor.kernels.reference.shared_levels import shared_search
from tersor.kernels.reference.thc import thc_add, thc_decode, thc_encode, unit_rms
from tersor.kernels.reference.uniform import sq_add, sq_decode, sq_encode
from tersor.kernels.reference.uniform_levels import join_symbols, split_symbols, uniform_counts, uniform_indices

__all__ = [
    "coded_path",
    "count_symbols",
    "dither_decode",
    "dither_encode",
    "draw_table",
    "drive_plus_encode",
    "dynamiq_decode",
    "dynamiq_hop",
    "dynamiq_stats",
    "eden_add",
    "eden_decode",
    "eden_encode",
    "entropy_costs",
    "first_nonfinite",
    "fwht",
    "half_decode",
    "half_encode",
    "int4_decode",
    "int4_encode",
    "int8_decode",
    "int8_encode",
    "join_symbols",
    "joint_path",
    "key_gather",
    "key_histogram",
    "levels_decode",
    "levels_encode",
    "log2",
    "mx_decode",
    "mx_encode",
    "optimal_path",
    "optimal_rows",
    "pack",
    "pair_path",
    "philox",
    "quicfl_add",
    "quicfl_decode",
    "quicfl_encode",
    "rans_decode",
    "rans_encode",
    "rotate",
    "rotate_units",
    "shared_decode",
    "shared_encode",
    "shared_search",
    "split_symbols",
    "sq_add",
    "sq_decode",
    "sq_encode",
    "thc_add",
    "thc_decode",
    "thc_encode",
    "uniform_counts",
    "uniform_indices",
    "unit_rms",
    "unpack",
    "unrotate_units",
]
