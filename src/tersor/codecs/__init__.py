"""The codecs, one scheme of encode and decode a file; importing this package registers them all."""

from tersor.codecs.eden import Drive, Eden
from tersor.codecs.formats import BFloat16, Float16, Int8, NoCompression
from tersor.codecs.sq import StochasticQuantization

__all__ = ["BFloat16", "Drive", "Eden", "Float16", "Int8", "NoCompression", "StochasticQuantization"]
