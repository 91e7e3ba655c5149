"""The errors that tersor raises, each with a message that says what to do."""


class TersorError(Exception):
    """Base of every error that is tersor's own."""


class NonFiniteError(TersorError, ValueError):
    """The input holds NaN or infinity.

    Attributes
    ----------
    index : int
        Position of the first such value in the flattened input.
    """

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message)
        self.index = index


class FormatError(TersorError, ValueError):
    """Bytes that are not a valid tersor message: damaged, truncated, forged or of another version."""


class IncompatibleError(TersorError, ValueError):
    """Two messages that cannot be combined: another codec, rotation key, shared statistics or shape."""


class RangeError(TersorError, OverflowError):
    """A value, or a sum of codes, does not fit in the type that must carry it."""
