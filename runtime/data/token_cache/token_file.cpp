#include "runtime/data/token_cache/token_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kMostNarrow = 65536;
constexpr int64_t kMostOnes = int64_t{1} << 20;  // bytes that are written at a time
// llm.c's header: 256 int32, of which the first three are magic, version and the number of tokens.
constexpr size_t kHeaderWords = 256;
constexpr int32_t kWideMagic = 20240801, kWideVersion = 7;

}  // namespace

TokenFile::TokenFile(const TokenFilePaths& paths, int64_t vocabulary)
    : file_(paths.tokens),
      documents_(paths.documents),
      targets_path_(paths.targets),
      wide_(vocabulary > kMostNarrow),
      bytes_(wide_ ? kHeaderWords * sizeof(int32_t) : 0) {}

void TokenFile::append(std::span<const uint32_t> ids, std::span<const size_t> starts,
                       std::span<const uint8_t> counts) {
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
  append_targets(counts, count);
  bytes_ += bytes_each() * count;
  tokens_ += count;
}

void TokenFile::append_targets(std::span<const uint8_t> counts, int64_t count) {
  const bool all = std::ranges::all_of(counts, [](uint8_t c) { return c == 1; });
  if (!targets_ && all) return;
  const auto write_ones = [this](int64_t begin, int64_t end) {
    const std::vector<uint8_t> ones(static_cast<size_t>(std::min(end - begin, kMostOnes)), 1);
    for (int64_t at = begin; at < end; at += std::ssize(ones))
      targets_->write_at(ones.data(), std::min(end - at, std::ssize(ones)), at);
  };
  if (!targets_) {
    targets_.emplace(targets_path_);
    write_ones(0, tokens_);
  }
  if (counts.empty()) return write_ones(tokens_, tokens_ + count);
  targets_->write_at(counts.data(), count, tokens_);
}

void TokenFile::commit() {
  if (wide_) {
    std::array<int32_t, kHeaderWords> header{kWideMagic, kWideVersion,
                                             static_cast<int32_t>(tokens_)};
    file_.write_at(header.data(), sizeof(header), 0);
  }
  const auto end = static_cast<uint64_t>(tokens_);
  documents_.write_at(&end, sizeof(end), document_bytes_);
  documents_.complete();
  file_.complete();
  // A file of another run would say of these tokens which ones count.
  if (targets_)
    targets_->commit();
  else if (::unlink(targets_path_.c_str()) != 0 && errno != ENOENT)
    fail_run("{} is of another token file and cannot be removed: {}", targets_path_,
             std::strerror(errno));
  documents_.commit();
  file_.commit();
}

}  // namespace dstrain
