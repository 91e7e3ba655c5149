"""The codecs, one scheme of encode and decode a file; importing this package registers them all."""

from tersor.codecs.drive import Drive
from tersor.codecs.eden import Eden
from tersor.codecs.formats import BFloat16, Float16, NoCompression
from tersor.codecs.int_blocks import Int4, Int8
from tersor.codecs.mx import MXFP4, MXFP6, MXFP8, MXINT8
from tersor.codecs.sq import StochasticQuantization

__all__ = [
    "MXFP4",
    "MXFP6",
    "MXFP8",
    "MXINT8",
    "BFloat16",
    "Drive",
    "Eden",
    "Float16",
    "Int4",
    "Int8",
    "NoCompression",
    "StochasticQuantization",
]
