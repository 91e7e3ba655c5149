// EDEN's encoder and decoder of all units of an array (FORMAT.md section 4).
#pragma once

#include "kernels.h"

namespace tersor {

// How an array of d coordinates is cut into units, where they stand in the random streams, and how wide their codes are:
// bits, and one more for the first `fraction` of a unit's rotated coordinates. 0 bits: not sent, level 0.
struct Units {
  i64 d = 0, unit = 1;
  u64 key = 0, start = 0;
  bool by_rows = false, full = false;
  int bits = 1;
  double fraction = 0;

  i64 count() const { return d == 0 ? 0 : (d - 1) / unit + 1; }
  i64 size(i64 k) const { return k == count() - 1 ? d - k * unit : unit; }
  u64 position(i64 k) const { return by_rows ? 0 : start + static_cast<u64>(k) * static_cast<u64>(unit); }
  i64 padded(i64 k) const;         // P of unit k
  i64 code_offset(i64 k) const;    // its first code byte
  i64 code_bytes() const;          // of all units
  i64 unit_bytes(i64 padded) const {
    const i64 high = high_count(padded, fraction);
    return packed_bytes(high, bits + 1) + packed_bytes(padded - high, bits);
  }
  i64 levels() const { return (i64{1} << bits) + (fraction > 0 ? i64{2} << bits : 0); }  // of both widths
  i64 thresholds() const { return levels() - (fraction > 0 ? 2 : 1); }
};

enum ScaleKind { kUnbiased, kBiased, kNorm, kOne };
enum ScaleType { kFloat32, kFloat16, kBFloat16 };

struct EncodeOptions {
  int scale_kind, scale_dtype, rotations;  // rotations: 0 is auto
};

// The quantizer of the width `bits` (null if that is 0) and, if there is a fraction, of the one above.
struct Quantizers {
  const Quantizer *low, *high;
};

struct EncodeResult {
  i64 first_bad;  // index of the first NaN or infinity, or -1
  double error, energy;
};

// The quantizer of 2^bits levels and 2^bits - 1 thresholds, bits = 1 .. 8; throws std::invalid_argument if these do not
// ascend. It lives until this thread's next call for that slot, 0 or 1.
const Quantizer &make_quantizer(int bits, const f32u *levels, const f32u *thresholds, int slot = 0);

// Arrays of one value a unit; norms may be null.
EncodeResult eden_encode(const Units &units, const Quantizers &quantizers, const EncodeOptions &options, const f32u *x,
                         u8 *codes, f32u *scales, u8 *rounds, f32u *norms);

// DRIVE+: one bit, and the two values that it stands for, found for each unit; `values` holds two a unit.
EncodeResult drive_plus_encode(const Units &units, const EncodeOptions &options, const f32u *x, u8 *codes, f32u *values,
                               u8 *rounds, f32u *norms);

// levels: those of `units.bits`, then those of one bit more if there is a fraction; `own`: for each unit, of 1 bit.
// present: null, or `pieces` flags a unit, for the equal runs of its rotated coordinates. rounds are at most kMaxRounds.
void eden_decode(const Units &units, const float *levels, const u8 *codes, const f32u *scales, const u8 *rounds,
                 double weight, bool add, const u8 *present, f32u *out, i64 pieces = 1, bool own = false);

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
