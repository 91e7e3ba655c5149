// The loops over coordinates, compiled once per SIMD level from kernels.cpp; dispatch.cpp chooses the level.
#pragma once

#include "lengths.h"
#include "simd_types.h"

namespace tersor {

constexpr i64 kChunk = 4096;  // the chunk of a sum (FORMAT.md section 4), also the unit of work on long vectors

// Purposes of a random stream.
constexpr u32 kSigns = 0, kPermutation = 1, kRounding = 2;

struct Quantizer {
  int bits;
  alignas(64) float levels[256];      // 2^bits, then zeros
  alignas(64) float thresholds[256];  // 2^bits - 1, then zeros, never compared
  // The thresholds that decide the first 4 or 5 bits of a longer code: small enough for registers.
  alignas(64) float first4[16], first5[32];
};

struct Kernels {
  const char *name;
  void (*philox)(u64 key, u32 purpose, u32 rotation, u64 block, int skip, i64 n, u32u *out);
  void (*fwht)(f32u *x, i64 size, i64 run, const u32 *signs);
  void (*fwht_columns)(f32u *x, int radix, i64 stride, i64 begin, i64 end);
  void (*flip_signs)(f32u *x, i64 n, const u32 *signs);
  void (*gather)(const f32u *v, const u32 *perm, i64 n, f32u *out);
  void (*scatter)(const f32u *v, const u32 *perm, i64 n, f32u *out);
  u32 (*max_magnitude)(const f32u *x, i64 n);
  void (*scale)(const f32u *x, i64 n, i64 padded, float s, float *w, double *moments);
  void (*quantise)(const Quantizer &quantizer, const float *y, i64 n, float inv, u8 *codes, double *sums);
  void (*pack)(const u8 *codes, i64 n, int bits, u8 *out);
  void (*unpack)(const u8 *in, i64 n, int bits, u8 *codes);
  void (*look_up)(const float *table, int bits, const u8 *codes, i64 n, float *v);
  void (*finish)(const float *v, i64 n, const u32 *signs, float f, bool add, f32u *out);
  void (*round)(const f32u *x, i64 n, double low, double inverse, int top, u64 key, u64 word, u8 *codes);
  void (*mean)(const u32 *sums, i64 n, double count, double low, double step, double weight, bool add, f32u *out);
  void (*int8_round)(const f32u *x, i64 n, float s, float t, std::int8_t *codes);
  void (*int8_expand)(const std::int8_t *codes, i64 n, float f, bool add, f32u *out);
};

}  // namespace tersor
