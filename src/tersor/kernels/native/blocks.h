// Blocks with packed codes and a scale each: int4, and the OCP Microscaling formats.
#pragma once

#include "kernels.h"

namespace tersor {

// d coordinates in rows of `row`, each cut in blocks of its own; a row's codes start on a byte.
struct BlockShape {
  i64 d, row, block;
};

// Both return the first index that is not finite, or -1. Scales: 0 float32, 1 float16, 2 bfloat16.
i64 int4_encode(const f32u *x, const BlockShape &shape, int scale_kind, u8 *codes, u8 *scales);
void int4_decode(const u8 *codes, const u8 *scales, const BlockShape &shape, int scale_kind, double weight, bool add,
                 f32u *out);

i64 mx_encode(const f32u *x, const BlockShape &shape, int element, const MxRounding &how, u8 *codes, u8 *scales);
void mx_decode(const u8 *codes, const u8 *scales, const BlockShape &shape, int element, double weight, bool add,
               f32u *out);

}  // namespace tersor
