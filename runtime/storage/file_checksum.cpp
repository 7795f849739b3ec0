#include "runtime/storage/file_checksum.h"

#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {

std::string file_checksum(const std::string& path) {
  constexpr int64_t kWhole = int64_t{256} << 20, kPieces = 64, kPiece = int64_t{1} << 20;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail_user("cannot read {}: {}", path, std::strerror(errno));
  const auto size = static_cast<int64_t>(file.tellg());
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), &size, sizeof size);
  std::vector<char> buffer(kPiece);
  const int64_t stride = size <= kWhole ? kPiece : (size - kPiece) / (kPieces - 1);
  for (int64_t at = 0; at < size; at += stride) {
    file.clear();
    file.seekg(at);
    file.read(buffer.data(), std::min(kPiece, size - at));
    XXH3_64bits_update(state.get(), buffer.data(), static_cast<size_t>(file.gcount()));
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

}  // namespace dstrain
