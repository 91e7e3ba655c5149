// The pool: workers sleep on a condition variable, take indices from an atomic counter, and live as long as the process.
#include "pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "float_environment.h"

namespace tersor {
namespace {

constexpr int kMaxThreads = 1024;

thread_local bool t_inside = false;  // a job within a job runs on its own thread alone

int default_threads() {
  int n = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    n = CPU_COUNT(&set);
  } else {
    n = static_cast<int>(std::thread::hardware_concurrency());
  }
  if (const char *env = std::getenv("OMP_NUM_THREADS")) {
    // "4" or "4,2,1" (nested levels); anything else is ignored, as OpenMP does.
    char *end = nullptr;
    const long v = std::strtol(env, &end, 10);
    if (end != env && (*end == '\0' || *end == ',') && v > 0) n = static_cast<int>(std::min<long>(n, v));
  }
  return std::clamp(n, 1, kMaxThreads);
}

struct Job {
  const std::function<void(std::int64_t)> *body;
  std::int64_t count;
  std::atomic<std::int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void run() {
    FloatEnvironment env;
    for (;;) {
      const std::int64_t i = next.fetch_add(1, std::memory_order_relaxed);
      if (i >= count) return;
      try {
        (*body)(i);
      } catch (...) {
        next.store(count, std::memory_order_relaxed);
        std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
    }
  }
};

class Pool {
 public:
  // False if another thread's job is running.
  bool run(Job &job, int threads) {
    std::unique_lock busy(busy_, std::try_to_lock);
    if (!busy) return false;
    {
      std::lock_guard lock(mutex_);
      start(threads - 1);
      job_ = &job;
      tickets_ = std::min(threads - 1, started_);
      active_ = 0;
    }
    wake_.notify_all();
    job.run();
    std::unique_lock lock(mutex_);
    tickets_ = 0;  // who has not come yet need not
    done_.wait(lock, [&] { return active_ == 0; });
    job_ = nullptr;
    return true;
  }

 private:
  // Detached: the process may end at any time without a joinable std::thread calling std::terminate.
  void start(int wanted) {
    while (started_ < wanted) {
      try {
        std::thread([this] { work(); }).detach();
      } catch (const std::system_error &) {
        return;  // no more threads to be had: go on with fewer
      }
      ++started_;
    }
  }

  void work() {
    t_inside = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return tickets_ > 0; });
      --tickets_;
      ++active_;
      Job *job = job_;
      lock.unlock();
      job->run();
      lock.lock();
      if (--active_ == 0) done_.notify_one();
    }
  }

  std::mutex busy_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job *job_ = nullptr;
  int tickets_ = 0, active_ = 0, started_ = 0;
};

std::atomic<Pool *> g_pool{nullptr};
std::atomic<int> g_threads{0};
// The child of a fork has none of the parent's workers and perhaps a locked mutex: it starts afresh. The old pool is
// leaked on purpose.
void forget_pool() { g_pool.store(nullptr); }

Pool &pool() {
  static const int registered = pthread_atfork(nullptr, nullptr, forget_pool);
  (void)registered;
  Pool *p = g_pool.load();
  if (!p) {
    Pool *fresh = new Pool;
    if (g_pool.compare_exchange_strong(p, fresh)) return *fresh;
    delete fresh;
  }
  return *p;
}

}  // namespace

int get_num_threads() {
  const int n = g_threads.load();
  return n > 0 ? n : default_threads();
}

void set_num_threads(int n) { g_threads.store(std::clamp(n, 0, kMaxThreads)); }

void parallel_for(std::int64_t count, const std::function<void(std::int64_t)> &body) {
  if (count <= 0) return;
  Job job{&body, count, {}, {}, {}};
  const int threads = static_cast<int>(std::min<std::int64_t>(t_inside ? 1 : get_num_threads(), count));
  bool done = false;
  if (threads > 1) {
    t_inside = true;
    done = pool().run(job, threads);
    t_inside = false;
  }
  if (!done) job.run();
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace tersor
