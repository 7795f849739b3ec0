#include "runtime/storage/weights/read_ahead.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/threads/without_signals.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

constexpr int64_t kBlock = 1 << 20;  // bytes, which stay in the cache of a core
constexpr int64_t kMost = int64_t{1} << 30;

// Whole blocks are read and left, because the system reads far ahead of what is read in order. Advice that they will be
// needed (posix_fadvise) took longer than the reading: the system then reads in small requests.
void read_first(const std::string& path, const std::stop_token& stop) try {
  std::vector<char> block(kBlock);
  int64_t left = kMost;
  for (const std::string& name : files_of_weights(path)) {
    const InputFile file(name, "the weights file");
    const int64_t end = std::min(left, file.size());
    for (int64_t at = 0; at < end && !stop.stop_requested(); at += kBlock)
      file.read_at(block.data(), std::min(kBlock, end - at), at);
    left -= end;
  }
} catch (const UserError&) {  // the reader of the weights reports it
}

}  // namespace

ReadAhead::ReadAhead(const std::string& path) {
  const WithoutSignals none;
  thread_ = std::jthread([path](const std::stop_token& stop) { read_first(path, stop); });
}

}  // namespace dstrain
