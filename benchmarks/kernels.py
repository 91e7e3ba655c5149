"""Speeds of the native kernels: what `tersor bench` prints, and bare transforms of all sizes.

pip install fht-cpu                                  # the peer; optional
python benchmarks/kernels.py --size 24 --clock cpu   # any option of `tersor bench`
"""

import sys

from tersor.cli.app import app

if __name__ == "__main__":
    options = sys.argv[1:]
    for more in ([], ["--transforms"]):
        app(["bench", *options, *more], standalone_mode=False)
