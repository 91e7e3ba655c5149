// A small thread pool: started on first use, rebuilt after fork, one job at a time.
#pragma once

#include <cstdint>
#include <functional>

namespace tersor {

// Calls body(i) for i in [0, count), on up to get_num_threads() threads, the caller among them. Which thread runs which
// i is not fixed: a body must not depend on it. A body that throws stops the job; the first exception is rethrown here.
// While another Python thread runs a job, the caller does its own alone. Every thread runs with IEEE defaults (no flush
// to zero, round to nearest).
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)> &body);

int get_num_threads();
void set_num_threads(int n);  // 0: back to the default (affinity and OMP_NUM_THREADS)

}  // namespace tersor
