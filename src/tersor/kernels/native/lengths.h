// The length rule of FORMAT.md section 3; the same as ../lengths.py.
#pragma once

#include <bit>
#include <cstdint>

namespace tersor {

using i64 = std::int64_t;
using u64 = std::uint64_t;
using u32 = std::uint32_t;
using u8 = std::uint8_t;

// Padded length P of a unit of n coordinates; n <= 2^62, so that nothing overflows.
inline i64 padded_length(i64 n, bool full) {
  if (n == 0) return 0;
  const int log2 = std::bit_width(static_cast<u64>(n - 1));
  const i64 unit = i64{1} << (full ? log2 : (log2 + 1) / 2);
  return (n + unit - 1) / unit * unit;
}

// B, the largest power of two that divides P.
inline i64 run_length(i64 padded) { return padded & -padded; }

inline int mixing_rounds(i64 padded) {
  const double run = static_cast<double>(run_length(padded));
  return run * run >= 16.0 * static_cast<double>(padded) ? 2 : 3;
}

// Of the P rotated coordinates of a unit, how many have the higher width: `fraction` of them, in whole bytes of one more
// bit. The 2^-10 keeps the rounding of fraction * P from adding a byte. The same as high_count in ../lengths.py.
inline i64 high_count(i64 padded, double fraction) {
  if (fraction == 0 || padded == 0) return 0;
  const double bytes = (fraction * static_cast<double>(padded) - 0x1p-10) / 8;
  i64 whole = static_cast<i64>(bytes);
  whole += static_cast<double>(whole) < bytes;  // rounded up
  whole = whole < 1 ? 1 : whole;
  return 8 * whole < padded ? 8 * whole : padded;
}

// Bytes of `count` codes of `bits` bits. Split so that huge counts do not overflow.
inline i64 packed_bytes(i64 count, int bits) { return count / 8 * bits + (count % 8 * bits + 7) / 8; }

}  // namespace tersor
