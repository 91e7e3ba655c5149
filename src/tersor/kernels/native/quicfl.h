// QUIC-FL's encoder, decoder and sum of all units of an array (FORMAT.md section 10).
#pragma once

#include <vector>

#include "eden.h"

namespace tersor {

// The quantizer of 2^bits codes and 2^shared_bits symbols as kernels want it; throws std::invalid_argument if the zones
// of a symbol do not ascend. low, width: 2^bits - 1 values a symbol.
Zones make_zones(int bits, int shared_bits, const f32u *low, const f32u *width, float limit);

struct QuicflEntries {  // exact entries: position in the unit, and value
  std::vector<u32> positions;
  std::vector<float> values;
};

// Key and start of `units` are those of the rotation; start counts rows if by_rows. Returns the index of the first NaN or
// infinity, or -1. Arrays of one value a unit; the exact entries come as lists, one after the other.
i64 quicfl_encode(const Units &units, const Zones &zones, u64 symbols, u64 private_key, const f32u *x, u8 *codes,
                  f32u *scales, u32u *counts, std::vector<QuicflEntries> &lists);

struct QuicflMessage {
  const u8 *codes;
  const f32u *scales;
  const u32u *counts;  // they add up to the length of the list
  const u32u *positions;  // below the padded length of their unit
  const f32u *values;
  u64 symbols;
  double weight;
};

// levels: 2^bits values a symbol. present: null, or one flag a unit.
void quicfl_decode(const Units &units, int shared_bits, const f32u *levels, const QuicflMessage &message, bool add,
                   const u8 *present, f32u *out);

// Adds the messages, all of one rotation: their sum is rotated back once.
void quicfl_add(const Units &units, int shared_bits, const f32u *levels, const QuicflMessage *messages, i64 n_messages,
                f32u *out);

}  // namespace tersor
