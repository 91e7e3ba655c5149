"""The native tests under AddressSanitizer and UndefinedBehaviorSanitizer: builds the core anew, which takes minutes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++ and its sanitizer libraries")
def test_native_code_is_clean_under_sanitizers():
    script = Path(__file__).parents[1] / "scripts" / "sanitize.sh"
    done = subprocess.run([str(script), sys.prefix], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert " passed" in done.stdout
