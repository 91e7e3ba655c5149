"""Input files for the tests of `tersor compress`."""

import json
from pathlib import Path

CODES = {"float32": "F32", "float64": "F64", "float16": "F16", "int64": "I64", "bool": "BOOL", "uint8": "U8"}


def safetensors(path: Path, arrays: dict, bf16: tuple[str, ...] = ()) -> Path:
    """Write a .safetensors file; names in `bf16` hold bit patterns."""
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, x in arrays.items():
        code = "BF16" if name in bf16 else CODES[x.dtype.name]
        header[name] = {"dtype": code, "shape": list(x.shape), "data_offsets": [len(body), len(body) + x.nbytes]}
        body += x.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path
