// Scratch memory of a thread: grown on demand, kept between calls while it is small.
#pragma once

#include <cstddef>
#include <new>

#include "lengths.h"

namespace tersor {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() { clear(); }

  // At least `count` values, uninitialised; what was there before is lost.
  T *get(i64 count) {
    if (count > capacity_) {
      clear();
      data_ = static_cast<T *>(::operator new(static_cast<std::size_t>(count) * sizeof(T), kAlign));
      capacity_ = count;
    }
    return data_;
  }
  const T *data() const { return data_; }
  // Gives a large buffer back; true if it did.
  bool trim() {
    const bool large = capacity_ * static_cast<i64>(sizeof(T)) > kKeep;
    if (large) clear();
    return large;
  }
  void clear() {
    ::operator delete(data_, kAlign);
    data_ = nullptr;
    capacity_ = 0;
  }

 private:
  static constexpr std::align_val_t kAlign{64};
  static constexpr i64 kKeep = i64{4} << 20;
  T *data_ = nullptr;
  i64 capacity_ = 0;
};

}  // namespace tersor
