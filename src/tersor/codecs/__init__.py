"""The codecs, one scheme of encode and decode a file; importing this package registers them all."""

from tersor.codecs.asq import ASQ
from tersor.codecs.drive import Drive
from tersor.codecs.ecasq import ECASQ
from tersor.codecs.ecuq import ECUQ
from tersor.codecs.eden import Eden
from tersor.codecs.formats import BFloat16, Float16, NoCompression
from tersor.codecs.int_blocks import Int4, Int8
from tersor.codecs.kashin import Kashin
from tersor.codecs.kmeans import KMeans
from tersor.codecs.mx import MXFP4, MXFP6, MXFP8, MXINT8
from tersor.codecs.natural import Natural
from tersor.codecs.qsgd import QSGD
from tersor.codecs.quicfl import QuicFL
from tersor.codecs.randk import PermK, RandK
from tersor.codecs.sign import Sign
from tersor.codecs.sq import StochasticQuantization
from tersor.codecs.terngrad import TernGrad
from tersor.codecs.thc import THC
from tersor.codecs.topk import TopK
from tersor.codecs.turboquant import TurboQuant

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
    "Drive",
    "Eden",
    "Float16",
    "Int4",
    "Int8",
    "KMeans",
    "Kashin",
    "Natural",
    "NoCompression",
    "PermK",
    "QuicFL",
    "RandK",
    "Sign",
    "StochasticQuantization",
    "TernGrad",
    "TopK",
    "TurboQuant",
]
