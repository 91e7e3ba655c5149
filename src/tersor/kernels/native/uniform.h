// Uniform stochastic quantization, the addition of its codes, int8 blocks, and plain packing of any width.
#pragma once

#include "kernels.h"

namespace tersor {

// Bytes of d codes cut into units that each start on a byte.
i64 stream_bytes(i64 d, i64 unit, int bits);

void sq_encode(const f32u *x, i64 d, i64 unit, double low, double high, int bits, u64 key, u64 first, u8 *codes);
void sq_decode(const u8 *codes, i64 d, i64 unit, double low, double high, int bits, int width, const u32u *counts,
               double weight, bool add, f32u *out);
// Subtractive dither; by_rows: every unit uses the words from 0 on. present: null, or one flag a unit.
void dither_encode(const f32u *x, i64 d, i64 unit, double low, double high, int bits, u64 key, u64 start, bool by_rows,
                   u8 *codes);
void dither_decode(const u8 *codes, i64 d, i64 unit, double low, double high, int bits, u64 key, u64 start,
                   bool by_rows, double weight, bool add, const u8 *present, f32u *out);

void sq_add(const u8 *a, int a_width, const u8 *b, int b_width, i64 d, i64 unit, u8 *out, int out_width);

i64 int8_encode(const f32u *x, i64 d, i64 row, i64 block, std::int8_t *codes, f32u *scales);
void int8_decode(const std::int8_t *codes, const f32u *scales, i64 d, i64 row, i64 block, double weight, bool add,
                 f32u *out);

// Rows of `n` codes; T is u8, u16 or u32 (any alignment), bits at most its width. Bits above are dropped.
template <class T>
void pack_rows(const T *codes, i64 rows, i64 n, int bits, u8 *out);
template <class T>
void unpack_rows(const u8 *packed, i64 rows, i64 n, int bits, T *out);

}  // namespace tersor
