// Block formats over whole arrays: pieces of whole blocks, at most 4,096 coordinates, several of them a task.
#include "blocks.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "dispatch.h"
#include "formats.h"
#include "pool.h"

namespace tersor {
namespace {

constexpr i64 kNone = std::numeric_limits<i64>::max();

// Where a piece lies: its first coordinate, its length, its codes' first byte, and its first block.
struct Piece {
  i64 begin, n, byte, block;
};

template <class Body>
void each_piece(const BlockShape &shape, int bits, const Body &body) {
  if (shape.d == 0) return;
  const i64 length = kChunk / shape.block * shape.block;  // a multiple of 8: it ends on a byte
  const i64 per_row = (shape.row - 1) / length + 1, pieces = shape.d / shape.row * per_row;
  const i64 blocks_per_row = (shape.row - 1) / shape.block + 1, stride = packed_bytes(shape.row, bits);
  const i64 batch = std::max<i64>(1, 16 * kChunk / std::min(length, shape.row));
  parallel_for((pieces - 1) / batch + 1, [&](i64 task) {
    for (i64 piece = task * batch; piece < std::min(pieces, (task + 1) * batch); ++piece) {
      const i64 row = piece / per_row, column = piece % per_row * length;
      body(Piece{row * shape.row + column, std::min(length, shape.row - column),
                 row * stride + packed_bytes(column, bits), row * blocks_per_row + column / shape.block});
    }
  });
}

// round(piece, bytes) makes a byte of each coordinate and says whether one of them is not finite.
template <class Round>
i64 encode(const f32u *x, const BlockShape &shape, int bits, u8 *codes, const Round &round) {
  std::atomic<i64> first_bad{kNone};
  each_piece(shape, bits, [&](const Piece &piece) {
    u8 bytes[kChunk];
    u8 *const to = codes + piece.byte;
    const bool bad = round(piece, bits == 8 ? to : bytes);
    if (bits < 8) kernels().pack(bytes, piece.n, bits, to);
    if (!bad) return;
    i64 at = piece.begin;
    while (kernels().max_magnitude(x + at, 1) < kInfinityBits) ++at;
    i64 before = first_bad.load(std::memory_order_relaxed);
    while (at < before && !first_bad.compare_exchange_weak(before, at, std::memory_order_relaxed)) {
    }
  });
  return first_bad.load() == kNone ? -1 : first_bad.load();
}

// expand(piece, bytes) makes coordinates of bytes.
template <class Expand>
void decode(const u8 *codes, const BlockShape &shape, int bits, const Expand &expand) {
  each_piece(shape, bits, [&](const Piece &piece) {
    u8 bytes[kChunk];
    const u8 *from = codes + piece.byte;
    if (bits < 8) {
      kernels().unpack(from, piece.n, bits, bytes);
      from = bytes;
    }
    expand(piece, from);
  });
}

i64 scale_bytes(int kind) { return kind == 0 ? 4 : 2; }

}  // namespace

i64 int4_encode(const f32u *x, const BlockShape &shape, int scale_kind, u8 *codes, u8 *scales) {
  return encode(x, shape, 4, codes, [&](const Piece &piece, u8 *bytes) {
    return kernels().int4_round(x + piece.begin, piece.n, shape.block, scale_kind, bytes,
                                scales + piece.block * scale_bytes(scale_kind));
  });
}

void int4_decode(const u8 *codes, const u8 *scales, const BlockShape &shape, int scale_kind, double weight, bool add,
                 f32u *out) {
  decode(codes, shape, 4, [&](const Piece &piece, const u8 *bytes) {
    kernels().int4_expand(bytes, piece.n, shape.block, scale_kind, scales + piece.block * scale_bytes(scale_kind),
                          weight, add, out + piece.begin);
  });
}

i64 mx_encode(const f32u *x, const BlockShape &shape, int element, const MxRounding &how, u8 *codes, u8 *scales) {
  return encode(x, shape, mx_bits(element), codes, [&](const Piece &piece, u8 *bytes) {
    const MxRounding here{how.up, how.stochastic, how.key, how.first + static_cast<u64>(piece.begin)};
    return kernels().mx_round(element, here, x + piece.begin, piece.n, bytes, scales + piece.block);
  });
}

void mx_decode(const u8 *codes, const u8 *scales, const BlockShape &shape, int element, double weight, bool add,
               f32u *out) {
  decode(codes, shape, mx_bits(element), [&](const Piece &piece, const u8 *bytes) {
    kernels().mx_expand(element, bytes, piece.n, scales + piece.block, weight, add, out + piece.begin);
  });
}

}  // namespace tersor
