"""tersor: float tensors stored, moved and added at 0.5 to 8 bits a coordinate, with an error known in advance."""

from tersor.codecs import (
    ASQ,
    ECASQ,
    ECUQ,
    MXFP4,
    MXFP6,
    MXFP8,
    MXINT8,
    QSGD,
    THC,
    BFloat16,
    Drive,
    Eden,
    Float16,
    Int4,
    Int8,
    Kashin,
    KMeans,
    Natural,
    NoCompression,
    PermK,
    QuicFL,
    RandK,
    Sign,
    StochasticQuantization,
    TernGrad,
    TopK,
    TurboQuant,
)

# isort: split
# `tersor.codecs` is the function; it takes the place of the package of that name, so it is imported after it.
from tersor.bundle import EncodedDict, encode_dict
from tersor.codec import Claims, Codec
from tersor.encoded import Encoded, concat
from tersor.errors import FormatError, IncompatibleError, NonFiniteError, RangeError, TersorError
from tersor.files import open_file as open
from tersor.files import save
from tersor.kernels.ops import backend, get_num_threads, set_num_threads
from tersor.mean import Mean, mean
from tersor.message import decode, from_bytes
from tersor.metrics import nmse, roundtrip
from tersor.registry import codecs, get_codec
from tersor.shared import Shared

__version__ = "0.1.0"

__all__ = [
    "ASQ",
    "ECASQ",
    "ECUQ",
    "MXFP4",
    "MXFP6",
    "MXFP8",
    "MXINT8",
    "QSGD",
    "THC",
    "BFloat16",
    "Claims",
    "Codec",
    "Drive",
    "Eden",
    "Encoded",
    "EncodedDict",
    "Float16",
    "FormatError",
    "IncompatibleError",
    "Int4",
    "Int8",
    "KMeans",
    "Kashin",
    "Mean",
    "Natural",
    "NoCompression",
    "NonFiniteError",
    "PermK",
    "QuicFL",
    "RandK",
    "RangeError",
    "Shared",
    "Sign",
    "StochasticQuantization",
    "TernGrad",
    "TersorError",
    "TopK",
    "TurboQuant",
    "backend",
    "codecs",
    "concat",
    "decode",
    "encode_dict",
    "from_bytes",
    "get_codec",
    "get_num_threads",
    "mean",
    "nmse",
    "open",
    "roundtrip",
    "save",
    "set_num_threads",
]
