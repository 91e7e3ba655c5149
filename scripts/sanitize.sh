#!/usr/bin/env bash
# Builds the native backend with ASan and UBSan and runs its tests and those of every operation.
# Usage: scripts/sanitize.sh [VENV] [pytest args]
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
shift || true

# An own venv that sees the packages of $venv but not its editable tersor (path files are not followed twice).
san=build/sanitize
if [ ! -x "$san/venv/bin/python" ]; then
  "$venv/bin/python" -m venv --without-pip "$san/venv"
fi
purelib() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }
purelib "$venv" > "$(purelib "$san/venv")/zz_outer.pth"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
  --target "$(purelib "$san/venv")" -Cbuild-dir="$san/cmake" -Ccmake.define.TERSOR_SANITIZE=ON .

cxx=${CXX:-g++}
# Without libstdc++ in front the first C++ exception aborts; CPython itself leaks by design.
export LD_PRELOAD="$($cxx -print-file-name=libasan.so) $($cxx -print-file-name=libstdc++.so.6)"
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc
exec "$san/venv/bin/python" -m pytest -p no:cacheprovider \
  tests/test_native*.py tests/test_blocks.py tests/test_backends.py "$@"
