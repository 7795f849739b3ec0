#include "runtime/storage/file_checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/core/files/input_file.h"

namespace dstrain {

std::string file_checksum(const std::string& path, std::string_view what) {
  constexpr int64_t kWhole = int64_t{256} << 20, kPieces = 64, kPiece = int64_t{1} << 20;
  const InputFile file(path, what);
  const int64_t size = file.size();
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       XXH3_freeState);
  XXH3_64bits_reset(state.get());
  XXH3_64bits_update(state.get(), &size, sizeof size);
  std::vector<char> buffer(kPiece);
  const int64_t stride = size <= kWhole ? kPiece : (size - kPiece) / (kPieces - 1);
  for (int64_t at = 0; at < size; at += stride) {
    const int64_t here = std::min(kPiece, size - at);
    file.read_at(buffer.data(), here, at);
    XXH3_64bits_update(state.get(), buffer.data(), static_cast<size_t>(here));
  }
  return fmt::format("{:016x}", XXH3_64bits_digest(state.get()));
}

}  // namespace dstrain
