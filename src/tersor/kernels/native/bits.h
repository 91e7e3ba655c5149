// Packing byte codes of 1 to 8 bits: 8 codes are one 64-bit word, closed up in three shift-and-mask steps.
#pragma once

#include "simd.h"

namespace tersor {
namespace {

constexpr int kGroups = 8;  // words side by side: 64 codes
typedef u64 W __attribute__((vector_size(8 * kGroups)));
typedef u64 WU __attribute__((vector_size(8 * kGroups), aligned(1), may_alias));

// The integer that holds 8 codes of B bits exactly, eight side by side; where the level converts it in one step.
template <int B>
struct Exact {
  static constexpr bool kExists = false;
};
#define TERSOR_EXACT(B, T, Exists)                                                \
  template <>                                                                     \
  struct Exact<B> {                                                               \
    static constexpr bool kExists = Exists;                                       \
    typedef T V __attribute__((vector_size(B * kGroups), aligned(1), may_alias)); \
  };
TERSOR_EXACT(1, u8, kLanes == 16)
TERSOR_EXACT(2, std::uint16_t, kLanes == 16)
TERSOR_EXACT(4, u32, true)
TERSOR_EXACT(8, u64, true)
#undef TERSOR_EXACT

// Other widths move whole words, which reach up to 7 bytes further: they stop 64 codes early.
template <int B>
constexpr i64 kMargin = Exact<B>::kExists ? 64 : 128;

// A mask of `Width` ones at the bottom of every `Step` bits, moved up by `Shift`.
template <int Width, int Step, int Shift>
constexpr u64 comb() {
  u64 mask = 0;
  for (int i = 0; i < 64; i += Step)
    for (int j = 0; j < Width; ++j) mask |= u64{1} << (i + j + Shift);
  return mask;
}

// Closes up pairs of fields of B bits at distance Step; T is u64 or W.
template <int B, int Step, class T>
TERSOR_INLINE T close_pairs(T x) {
  return (x & comb<B, 2 * Step, 0>()) | ((x & comb<B, 2 * Step, Step>()) >> (Step - B));
}
template <int B, int Step, class T>
TERSOR_INLINE T open_pairs(T x) {
  return (x & comb<B, 2 * Step, 0>()) | ((x << (Step - B)) & comb<B, 2 * Step, Step>());
}
template <int B, class T>
TERSOR_INLINE T close_up(T x) {
  if constexpr (B == 8) return x;
  return close_pairs<4 * B, 32>(close_pairs<2 * B, 16>(close_pairs<B, 8>(x)));
}
template <int B, class T>
TERSOR_INLINE T open_up(T x) {
  if constexpr (B == 8) return x;
  return open_pairs<B, 8>(open_pairs<2 * B, 16>(open_pairs<4 * B, 32>(x)));
}

// Never writes beyond the packed bytes of n codes: the unit that follows may belong to another thread.
template <int B>
void pack_bits(const u8 *codes, i64 n, u8 *out) {
  i64 i = 0;
  for (; i + kMargin<B> <= n; i += 64, out += 8 * B) {
    const W x = close_up<B>(W(*reinterpret_cast<const WU *>(codes + i)));
    if constexpr (Exact<B>::kExists) {
      *reinterpret_cast<typename Exact<B>::V *>(out) = __builtin_convertvector(x, typename Exact<B>::V);
    } else {
      // What a store leaves behind its B bytes, the next one overwrites.
      for (int g = 0; g < kGroups; ++g) *reinterpret_cast<u64u *>(out + g * B) = x[g];
    }
  }
  for (; i < n; i += 8, out += B) {
    const int count = static_cast<int>(n - i < 8 ? n - i : 8);
    u64 x = 0;
    std::memcpy(&x, codes + i, static_cast<std::size_t>(count));
    x = close_up<B>(x);
    std::memcpy(out, &x, static_cast<std::size_t>((count * B + 7) / 8));
  }
}

// Never reads beyond the packed bytes of n codes.
template <int B>
void unpack_bits(const u8 *in, i64 n, u8 *codes) {
  i64 i = 0;
  for (; i + kMargin<B> <= n; i += 64, in += 8 * B) {
    W x;
    if constexpr (Exact<B>::kExists) {
      x = __builtin_convertvector(*reinterpret_cast<const typename Exact<B>::V *>(in), W);
    } else {
      for (int g = 0; g < kGroups; ++g) x[g] = *reinterpret_cast<const u64u *>(in + g * B);
    }
    *reinterpret_cast<WU *>(codes + i) = open_up<B>(x);
  }
  for (; i < n; i += 8, in += B) {
    const int count = static_cast<int>(n - i < 8 ? n - i : 8);
    u64 x = 0;
    std::memcpy(&x, in, static_cast<std::size_t>((count * B + 7) / 8));
    x = open_up<B>(x);
    std::memcpy(codes + i, &x, static_cast<std::size_t>(count));
  }
}

void pack_codes(const u8 *codes, i64 n, int bits, u8 *out) {
  switch (bits) {
    case 1: return pack_bits<1>(codes, n, out);
    case 2: return pack_bits<2>(codes, n, out);
    case 3: return pack_bits<3>(codes, n, out);
    case 4: return pack_bits<4>(codes, n, out);
    case 5: return pack_bits<5>(codes, n, out);
    case 6: return pack_bits<6>(codes, n, out);
    case 7: return pack_bits<7>(codes, n, out);
    default: return pack_bits<8>(codes, n, out);
  }
}

void unpack_codes(const u8 *in, i64 n, int bits, u8 *codes) {
  switch (bits) {
    case 1: return unpack_bits<1>(in, n, codes);
    case 2: return unpack_bits<2>(in, n, codes);
    case 3: return unpack_bits<3>(in, n, codes);
    case 4: return unpack_bits<4>(in, n, codes);
    case 5: return unpack_bits<5>(in, n, codes);
    case 6: return unpack_bits<6>(in, n, codes);
    case 7: return unpack_bits<7>(in, n, codes);
    default: return unpack_bits<8>(in, n, codes);
  }
}

}  // namespace
}  // namespace tersor
