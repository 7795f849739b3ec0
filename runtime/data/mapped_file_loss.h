// What happens when a mapped file is cut short under its readers. The kernel answers such a read with SIGBUS, which
// would end the process without a word: here the part that is gone reads as zeros from then on, and the mapping is
// marked, so that who reads it can say what happened. Stands on POSIX.
#pragma once

#include <atomic>
#include <cstdint>

namespace dstrain {

// Watches the mapping [begin, begin + bytes) while it lives. At most 64 are watched at a time in a process; one more
// is not, and its reads end the process as they would without.
class MappingWatch {
 public:
  MappingWatch(const void* begin, int64_t bytes);
  MappingWatch(const MappingWatch&) = delete;
  MappingWatch& operator=(const MappingWatch&) = delete;
  ~MappingWatch();

  // Whether a part of the mapping was read that the file no longer has.
  bool lost() const;

 private:
  struct Slot;
  friend struct Slots;
  Slot* slot_ = nullptr;
};

}  // namespace dstrain
