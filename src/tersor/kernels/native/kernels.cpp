// One level's table of kernels. CMakeLists.txt compiles this file once per level, with TERSOR_LEVEL its name.
//
// Only this table has external linkage. No standard library code that could be emitted out of line here: the linker
// keeps one copy of such functions for all levels, perhaps one that this CPU cannot run.
#include "kernels.h"

#include "bits.h"
#include "dither_kernels.h"
#include "dynamiq_kernels.h"
#include "eden_kernels.h"
#include "entropy_kernels.h"
#include "hadamard.h"
#include "half.h"
#include "int4_kernels.h"
#include "key_histogram.h"
#include "level_search_kernels.h"
#include "level_codes_kernels.h"
#include "mx_kernels.h"
#include "philox.h"
#include "rans_kernels.h"
#include "shared_codes_kernels.h"
#include "quicfl_kernels.h"
#include "uniform_kernels.h"
#include "uniform_levels_kernels.h"

#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0
#error "tersor needs float arithmetic in float precision (on x86: SSE2)"
#endif

#define TERSOR_NAME2(level) kernels_##level
#define TERSOR_NAME(level) TERSOR_NAME2(level)
#define TERSOR_STRING2(level) #level
#define TERSOR_STRING(level) TERSOR_STRING2(level)

namespace tersor {

extern const Kernels TERSOR_NAME(TERSOR_LEVEL);
const Kernels TERSOR_NAME(TERSOR_LEVEL) = {
    TERSOR_STRING(TERSOR_LEVEL),
    philox,
    fwht,
    fwht_first,
    fwht_later,
    fwht_columns,
    flip_signs,
    gather,
    scatter,
    max_magnitude,
    scale_chunk,
    scale_and_rotate,
    quantise_chunk,
    pack_codes,
    unpack_codes,
    look_up_chunk,
    finish_chunk,
    rotate_and_finish,
    round_chunk,
    dither_chunk,
    undither_chunk,
    mean_chunk,
    add_bytes,
    half_encode,
    half_decode,
    int8_chunk,
    int8_expand,
    int4_round,
    int4_expand,
    mx_round,
    mx_expand,
    rans_encode_chunk,
    rans_decode_chunk,
    quicfl_round_chunk,
    quicfl_look_up_chunk,
    uniform_index_chunk,
    price_nodes,
    few_levels,
    key_count,
    levels_round,
    log2_chunk,
    entropy_costs_rows,
    joint_search,
    coded_search,
    pair_search,
    shared_symbols,
    shared_round,
    shared_expand,
    super_hop,
    super_decode,
    super_stats,
};

}  // namespace tersor
