// Mapped files that are cut short while they are read. The kernel answers a read of the missing part with
// SIGBUS, which would end the process without a message. The handler installed here maps zeros there instead
// and marks the mapping, so that its reader can report an error.
#pragma once

#include <atomic>
#include <cstdint>

namespace dstrain {

// Watches the mapping [begin, begin + bytes) while this object lives. At most 8192 mappings of a process are
// watched at a time; others end the process as without this class.
class MappingWatch {
 public:
  MappingWatch(const void* begin, int64_t bytes);
  MappingWatch(const MappingWatch&) = delete;
  MappingWatch& operator=(const MappingWatch&) = delete;
  ~MappingWatch();

  // Returns whether a part of the mapping was read that the file no longer has.
  bool lost() const;

 private:
  struct Watched;
  friend struct WatchedMappings;
  Watched* watched_ = nullptr;
};

}  // namespace dstrain
