#include "launcher/tokens/token_file.h"

#include <array>
#include <limits>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kMostNarrow = 65536;
// llm.c's header: 256 int32, of which the first three are magic, version and the number of tokens.
constexpr size_t kHeaderWords = 256;
constexpr int32_t kWideMagic = 20240801, kWideVersion = 7;

}  // namespace

TokenFile::TokenFile(const std::string& path, const std::string& documents_path, int64_t vocabulary)
    : file_(path),
      documents_(documents_path),
      wide_(vocabulary > kMostNarrow),
      bytes_(wide_ ? kHeaderWords * sizeof(int32_t) : 0) {}

void TokenFile::append(std::span<const uint32_t> ids, std::span<const size_t> starts) {
  const auto count = std::ssize(ids);
  if (wide_ && tokens_ + count > std::numeric_limits<int32_t>::max())
    fail_user(
        "{}: there are more than {} tokens, which the header of a token file cannot state: make "
        "several files",
        file_.path(), std::numeric_limits<int32_t>::max());
  std::vector<uint64_t> places;
  for (const size_t start : starts) places.push_back(static_cast<uint64_t>(tokens_) + start);
  const auto place_bytes = static_cast<int64_t>(places.size() * sizeof(uint64_t));
  documents_.write_at(places.data(), place_bytes, document_bytes_);
  document_bytes_ += place_bytes;
  if (wide_) {
    file_.write_at(ids.data(), 4 * count, bytes_);
  } else {
    narrow_.assign(ids.begin(), ids.end());
    file_.write_at(narrow_.data(), 2 * count, bytes_);
  }
  bytes_ += bytes_each() * count;
  tokens_ += count;
}

void TokenFile::commit() {
  if (wide_) {
    std::array<int32_t, kHeaderWords> header{kWideMagic, kWideVersion,
                                             static_cast<int32_t>(tokens_)};
    file_.write_at(header.data(), sizeof(header), 0);
  }
  const auto end = static_cast<uint64_t>(tokens_);
  documents_.write_at(&end, sizeof(end), document_bytes_);
  documents_.commit();
  file_.commit();
}

}  // namespace dstrain
