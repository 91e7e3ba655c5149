#!/usr/bin/env bash
# Fuzzes the native decoders under ASan and UBSan, then the parsers of messages and bundles with atheris.
# Usage: scripts/fuzz.sh [VENV] [EXECUTIONS] [SEED]
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv} count=${2:-100000} seed=${3:-1}
native=src/tersor/kernels/native out=build/fuzz cxx=${CXX:-g++}
mkdir -p "$out"

# As CMakeLists.txt builds it with TERSOR_SANITIZE, without Python: one object a level, the rest once.
flags=(-std=c++20 -O1 -g -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-omit-frame-pointer -Wno-psabi
       -fsanitize=address,undefined -fno-sanitize-recover=undefined "-I$native")
levels=(scalar) base=()
if [[ $(uname -m) == x86_64 ]]; then
  levels+=(avx2 avx512)
  base=(-DTERSOR_X86)
fi
build() {  # object, source, flags: only if some source is newer
  [[ -n $(find "$native" "$2" -newer "$out/$1.o" 2>/dev/null || echo all) ]] || return 0
  "$cxx" "${flags[@]}" "${@:3}" -c "$2" -o "$out/$1.o"
}
objects=()
for level in "${levels[@]}"; do
  march=()
  [[ $level == avx2 ]] && march=(-march=x86-64-v3)
  [[ $level == avx512 ]] && march=(-march=x86-64-v4 -mprefer-vector-width=512)
  build "kernels_$level" "$native/kernels.cpp" "-DTERSOR_LEVEL=$level" "${march[@]}"
  objects+=("$out/kernels_$level.o")
done
for source in "$native"/*.cpp tests/fuzz/decoders.cpp; do
  name=$(basename "$source" .cpp)
  case $name in kernels | bindings*) continue ;; esac
  build "$name" "$source" "${base[@]}"
  objects+=("$out/$name.o")
done
"$cxx" -fsanitize=address,undefined "${objects[@]}" -pthread -o "$out/decoders"
UBSAN_OPTIONS=print_stacktrace=1 "$out/decoders" "$count" "$seed"

# Coverage-guided, in Python: atheris goes into a folder of its own, tersor does not depend on it.
if [[ ! -d $out/atheris ]]; then
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --target "$out/atheris" atheris ||
    { rm -rf "$out/atheris"; echo "fuzz: no atheris here, the parsers are left out" >&2; exit 0; }
fi
PYTHONPATH="$out/atheris" "$venv/bin/python" tests/fuzz/parsers.py "-runs=$count" "-seed=$seed" "-artifact_prefix=$out/" 2>"$out/parsers.log" ||
  { tail -40 "$out/parsers.log" >&2; exit 1; }
echo "parsers: $(tail -1 "$out/parsers.log")"
