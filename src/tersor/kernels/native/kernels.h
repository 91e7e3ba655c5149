// The loops over coordinates, compiled once per SIMD level from kernels.cpp; dispatch.cpp chooses the level.
#pragma once

#include "lengths.h"
#include "simd_types.h"

namespace tersor {

constexpr i64 kChunk = 4096;  // the chunk of a sum (FORMAT.md section 4), also the unit of work on long vectors

// The OCP Microscaling formats: elements are e4m3, e5m2, e2m3, e3m2, e2m1, int8, in that order.
constexpr i64 kMxBlock = 32;
constexpr int kElements = 6;
// Of MX elements: scales `up` to where no element saturates; stochastic with words `first` + i of the private stream.
struct MxRounding {
  bool up, stochastic;
  u64 key, first;
};
inline int mx_bits(int element) { return element < 2 || element == 5 ? 8 : element < 4 ? 6 : 4; }

// Purposes of a random stream.
constexpr u32 kSigns = 0, kPermutation = 1, kRounding = 2, kSymbols = 4, kDither = 5;

// A scalar quantizer and the tables that search.h finds codes with; made by make_quantizer.
struct Quantizer {
  int bits = 0;
  alignas(64) float levels[256] = {};      // 2^bits, then zeros
  alignas(64) float thresholds[256] = {};  // 2^bits - 1, then zeros, never compared
  // The thresholds that decide the first 4 or 5 bits of a longer code: small enough for registers.
  alignas(64) float first4[16] = {}, first5[32] = {};

  // The grid, if no cell holds two thresholds: its cells in a unit of the value, and how many there are.
  static constexpr float cells_a_unit(int bits) { return bits < 2 ? 1 : static_cast<float>(1 << (bits - 2)); }
  static constexpr int cells(int bits) { return bits < 5 ? 32 : bits < 8 ? 1 << bits : 512; }
  bool grid = false;
  float limit = 0;                                                           // magnitudes beyond it count as it
  alignas(64) float cell_thresholds[32] = {};                                // up to 4 bits: by floor(z / width) mod 32
  alignas(64) std::int32_t cell_codes[32] = {};
  alignas(64) u32 entries[512] = {};                                         // above: by floor(|z| / width)

  // 8 bits without such a grid, as few values of them stand in a uniform one: 256 cells by floor(z * scale) mod 256.
  bool wide = false;
  float wide_scale = 0, wide_limit = 0;
  alignas(64) float wide_thresholds[256] = {};
  alignas(64) std::int32_t wide_codes[256] = {};
};

struct LevelProblem;  // level_search.h
struct LevelNodes;
struct RansEncodeTable;  // rans.h
struct RansDecodeTable;
// QUIC-FL's zones, in layers: below zone j of any symbol lies zone j - 1 of every symbol. Symbols of fewer bits repeat.
// Made by make_zones.
struct Zones {
  static constexpr int most_shared(int bits) { return bits == 1 ? 6 : bits == 2 ? 5 : 4; }
  int bits = 0;
  float limit = 0;   // magnitudes beyond it are sent exactly
  Quantizer layers;  // its thresholds are the layers' low ends
  alignas(64) float pairs[256][2] = {};  // by j << most_shared | symbol: the zone's low end, its width times 2^-24
};

struct EntropyProblem;  // entropy.h
// What codes with shared randomness are drawn from: the stream of the codebooks' numbers, and the sender's own.
struct SharedDraws {
  u64 key, private_key;
  int shared, turn;  // number of codebooks; what is added to all numbers
  bool by_rows;      // every unit uses the numbers from the first on
};

// DynamiQ: the magnitudes in [0, 1] of the levels of one width, the steps between them, and the values of all codes.
struct SuperLevels {
  alignas(64) float magnitudes[128 + 16] = {}, widths[128 + 16] = {}, values[256] = {};
  alignas(64) std::int32_t cells[512] = {};  // of 8 bits: the level at or below i / 512; no cell holds two levels
};
struct SuperDraws {
  u64 shared, private_key;
  int rank, size;
};

struct Kernels {
  const char *name;
  void (*philox)(u64 key, u32 purpose, u32 rotation, u64 block, int skip, i64 n, u32u *out);
  void (*fwht)(f32u *x, i64 size, i64 run, const u32 *signs);
  void (*fwht_first)(f32u *x, i64 size, i64 run, const u32 *signs);
  void (*fwht_later)(f32u *x, i64 size, i64 run);
  void (*fwht_columns)(f32u *x, int radix, i64 stride, i64 begin, i64 end);
  void (*flip_signs)(f32u *x, i64 n, const u32 *signs);
  void (*gather)(const f32u *v, const u32 *perm, i64 n, f32u *out);
  void (*scatter)(const f32u *v, const u32 *perm, i64 n, f32u *out);
  u32 (*max_magnitude)(const f32u *x, i64 n);
  void (*scale)(const f32u *x, i64 n, i64 padded, float s, float *w, double *moments);
  void (*scale_and_rotate)(const f32u *x, i64 n, i64 padded, float s, const u32 *signs, float *w, double *moments);
  void (*quantise)(const Quantizer &quantizer, const float *y, i64 n, float inv, const f32u *ahead, u8 *out,
                   double *sums);
  void (*pack)(const u8 *codes, i64 n, int bits, u8 *out);
  void (*unpack)(const u8 *in, i64 n, int bits, u8 *codes);
  void (*look_up)(const float *table, int bits, const u8 *codes, i64 n, i64 run, float *v);
  void (*finish)(const float *v, i64 n, const u32 *signs, float f, bool add, f32u *out);
  void (*rotate_and_finish)(float *v, i64 n, i64 padded, const u32 *signs, float f, bool add, bool stream, f32u *out);
  void (*round)(const f32u *x, i64 n, double low, double inverse, int top, u64 key, u64 word, u8 *codes);
  void (*dither)(const f32u *x, i64 n, double low, double inverse, int top, u64 key, u64 word, u8 *codes);
  void (*undither)(const u8 *codes, i64 n, double low, double step, u64 key, u64 word, double weight, bool add,
                   f32u *out);
  void (*mean)(const u32 *sums, i64 n, double count, double low, double step, double weight, bool add, f32u *out);
  void (*add_bytes)(const u8 *a, const u8 *b, i64 n, int width, u8 *out);
  void (*half_encode)(const f32u *x, i64 n, bool bfloat, bool tame, u16u *out);
  void (*half_decode)(const u16u *codes, i64 n, bool bfloat, float f, bool add, f32u *out);
  void (*int8_round)(const f32u *x, i64 n, float s, float t, std::int8_t *codes);
  void (*int8_expand)(const std::int8_t *codes, i64 n, float f, bool add, f32u *out);
  bool (*int4_round)(const f32u *x, i64 n, i64 block, int scale_kind, u8 *codes, u8 *scales);
  void (*int4_expand)(const u8 *codes, i64 n, i64 block, int scale_kind, const u8 *scales, double weight, bool add,
                      f32u *out);
  bool (*mx_round)(int element, const MxRounding &how, const f32u *x, i64 n, u8 *codes, u8 *scales);
  void (*mx_expand)(int element, const u8 *codes, i64 n, const u8 *scales, double weight, bool add, f32u *out);
  i64 (*rans_encode)(const RansEncodeTable &table, const u8 *symbols, i64 m, u8 *end);
  bool (*rans_decode)(const RansDecodeTable &table, const u8 *data, i64 nbytes, i64 m, u8 *out);
  i64 (*quicfl_round)(const Zones &zones, const float *y, i64 n, float inv, const u32 *words, const u8 *fields,
                      const f32u *ahead, u8 *out, u32 *positions, float *values);
  void (*quicfl_look_up)(const float *table, int bits, const u8 *codes, i64 n, const u8 *fields, bool add, float f,
                         float *v);
  void (*uniform_index)(const f32u *x, i64 n, double low, double scale, int top, u16u *out);
  void (*price_nodes)(const LevelProblem &problem, double price, const LevelNodes &nodes);
  void (*few_levels)(const double *x, const double *sums, i64 n, i64 levels, i64 *places);
  bool (*key_count)(const f32u *x, i64 n, float centre, u64 *even, u64 *odd, float *ends, double *rest);
  void (*levels_round)(const f32u *x, i64 units, i64 n, const f32u *levels, int bits, bool stochastic, u64 key, u64 word,
                       u8 *codes, double *sums);
  void (*log2)(const double *x, i64 n, double *out);
  void (*entropy_costs)(const double *t, const double *n, const double *b, const double *g, i64 m, double *cost,
                        double *up, double *joint);
  i64 (*joint_search)(const EntropyProblem &p, double *room, std::int32_t *path, double *minimum);
  i64 (*coded_search)(const EntropyProblem &p, const double *lengths, const std::int32_t *from, const std::int32_t *to,
                      i64 levels, double *room, std::int32_t *path, double *minimum);
  i64 (*pair_search)(const EntropyProblem &p, double *room, std::int32_t *path, double *minimum);
  void (*shared_symbols)(u64 key, u64 word, i64 n, int shared, int turn, u32 *h);
  void (*shared_round)(const SharedDraws &draws, const f32u *x, i64 units, i64 n, const f32u *levels, int bits,
                       u64 symbol, u64 word, u8 *codes, double *sums);
  void (*shared_expand)(int bits, int shared, const float *table, const u8 *plain, i64 n, const u32 *h, bool add,
                        f32u *out);
  void (*super_hop)(const SuperLevels &levels, int bits, const SuperDraws &draws, u64 index, const f32u *x, i64 n,
                    float scale, float mean, const u8 *received, u8 *record, double *sums);
  void (*super_decode)(const SuperLevels &levels, int bits, const u8 *record, i64 n, float shift, float factor, bool add,
                       f32u *out);
  void (*super_stats)(const f32u *x, i64 n, float scale, float *mean, float *energy);
};

}  // namespace tersor
