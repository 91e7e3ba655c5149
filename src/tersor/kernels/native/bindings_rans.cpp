// The Python side of the entropy coder.
#include "bindings.h"
#include "rans.h"

namespace tersor {
namespace {

// Frequencies as the kernels need them: aligned, with a sum that is a power of two.
struct Frequencies {
  u32 values[256] = {};
  int count = 0, bits = 0;
  explicit Frequencies(const In<u32> &freqs) : count(static_cast<int>(std::min<i64>(length(freqs), 257))) {
    check(count >= 1 && count <= 256, "freqs must have 1 to 256 elements");
    u64 sum = 0;
    for (int i = 0; i < count; ++i) sum += values[i] = static_cast<const u32u *>(freqs.data())[i];
    while (bits <= kRansMaxBits && u64{1} << bits < sum) ++bits;
    check(bits >= kRansMinBits && bits <= kRansMaxBits && u64{1} << bits == sum,
          "freqs must sum to a power of two, 2 to 32768");
  }
};

i64 py_rans_encode(In<u8> symbols, In<u32> freqs, Out<u8> out) {
  const Frequencies f(freqs);
  check_length(out, rans_room(length(symbols)), "out");
  const u8 *from = symbols.data();
  const i64 n = length(symbols);
  u8 *to = out.data();
  Running running;
  return rans_encode(from, n, f.values, f.count, f.bits, to);
}

int py_rans_decode(In<u8> data, In<u32> freqs, Out<u8> out) {
  const Frequencies f(freqs);
  const u8 *from = data.data();
  const i64 nbytes = length(data), n = length(out);
  u8 *to = out.data();
  Running running;
  return rans_decode(from, nbytes, f.values, f.count, f.bits, to, n);
}

void py_count_symbols(In<u8> symbols, Out<u64> counts) {
  check_length(counts, 256, "counts");
  const u8 *from = symbols.data();
  const i64 n = length(symbols);
  u64u *to = counts.data();
  Running running;
  count_symbols(from, n, to);
}

}  // namespace

void bind_rans(nb::module_ &m) {
  m.def("rans_encode", py_rans_encode, "symbols"_a.noconvert(), "freqs"_a.noconvert(), "out"_a.noconvert());
  m.def("rans_decode", py_rans_decode, "data"_a.noconvert(), "freqs"_a.noconvert(), "out"_a.noconvert());
  m.def("count_symbols", py_count_symbols, "symbols"_a.noconvert(), "counts"_a.noconvert());
}

}  // namespace tersor
