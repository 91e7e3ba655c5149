"""The codec that CONTRIBUTING.md walks through works as printed there."""

import re
import subprocess
import sys
from pathlib import Path

CHECK = """
import tersor
x = np.random.default_rng(0).laplace(size=(6, 500)).astype(np.float32)
for axis in (None, -1):
    enc = tersor.get_codec("mysign").encode(x, axis=axis)
    again = tersor.from_bytes(enc.to_bytes())
    x_hat = tersor.decode(again)
    assert enc.nbytes == tersor.get_codec("mysign").nbytes(x.shape, axis=axis) == len(enc.to_bytes())
    law = 1 - np.abs(x).sum() ** 2 / (x.size * (x**2).sum())
    assert abs(tersor.nmse(x, x_hat) - law) < 0.02, (tersor.nmse(x, x_hat), law)
rows = tersor.get_codec("mysign").encode(x, axis=-1)
assert np.array_equal(tersor.decode(rows[2:4]), tersor.decode(rows)[2:4])
assert tersor.get_codec("mysign:256").encode(np.zeros(0, np.float32)).size == 0
"""


def test_the_codec_of_the_guide_works():
    guide = Path(__file__).parents[1] / "CONTRIBUTING.md"
    (code,) = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-c", code + CHECK], check=True, timeout=120)
