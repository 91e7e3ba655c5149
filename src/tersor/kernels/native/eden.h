// EDEN's encoder and decoder of all units of an array (FORMAT.md section 4).
#pragma once

#include "kernels.h"

namespace tersor {

// How an array of d coordinates is cut into units and where they stand in the random streams.
struct Units {
  i64 d = 0, unit = 1;
  u64 key = 0, start = 0;
  bool by_rows = false, full = false;
  int bits = 1;

  i64 count() const { return d == 0 ? 0 : (d - 1) / unit + 1; }
  i64 size(i64 k) const { return k == count() - 1 ? d - k * unit : unit; }
  u64 position(i64 k) const { return by_rows ? 0 : start + static_cast<u64>(k) * static_cast<u64>(unit); }
  i64 padded(i64 k) const;         // P of unit k
  i64 code_offset(i64 k) const;    // its first code byte
  i64 code_bytes() const;          // of all units
};

enum ScaleKind { kUnbiased, kBiased, kNorm, kOne };
enum ScaleType { kFloat32, kFloat16, kBFloat16 };

struct EncodeOptions {
  int scale_kind, scale_dtype, rotations;  // rotations: 0 is auto
};

struct EncodeResult {
  i64 first_bad;  // index of the first NaN or infinity, or -1
  double error, energy;
};

// The quantizer of 2^bits levels and 2^bits - 1 thresholds, bits = 1 .. 8; throws std::invalid_argument if these do not
// ascend. It lives until this thread's next call.
const Quantizer &make_quantizer(int bits, const f32u *levels, const f32u *thresholds);

// Arrays of one value a unit; norms may be null.
EncodeResult eden_encode(const Units &units, const Quantizer &quantizer, const EncodeOptions &options, const f32u *x,
                         u8 *codes, f32u *scales, u8 *rounds, f32u *norms);

// present: null, or one flag a unit. rounds are at most kMaxRounds.
void eden_decode(const Units &units, const float *levels, const u8 *codes, const f32u *scales, const u8 *rounds,
                 double weight, bool add, const u8 *present, f32u *out);

// One of several messages that are cut into the same units.
struct EdenMessage {
  const u8 *codes;
  const f32u *scales;
  const u8 *rounds;
  u64 key, start;
  double weight;
};

// Adds the messages to `out` in their order, unit by unit: the sums of eden_decode with add. Key and start of `units` do
// not count.
void eden_add(const Units &units, const float *levels, const EdenMessage *messages, i64 n_messages, f32u *out);

// One float32 rounded to another type, nearest, ties to even.
float round_to(float value, int dtype);

}  // namespace tersor
