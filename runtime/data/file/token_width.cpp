#include "runtime/data/file/token_width.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::string_view kKey = "dstrain.data.token_dtype";
constexpr int64_t kMostLookedAt = int64_t{64} << 20;  // bytes
// A file of uint16 has a 0 at every second place of so many by chance only if nearly all of its ids are 0.
constexpr int64_t kFewestWords = 32;

// Returns how many tokens the files beside a token file say that it has; nothing if there are none.
std::optional<int64_t> tokens_said_beside(const DataFile& file) {
  std::error_code none;
  const std::string documents = file.path() + ".documents", targets = file.path() + ".targets";
  const auto bytes = std::filesystem::file_size(documents, none);
  if (!none && bytes >= 16 && bytes % 8 == 0) {
    const DataFile starts(documents);
    uint64_t last = 0;
    std::memcpy(&last, starts.data() + starts.bytes() - 8, sizeof(last));
    starts.check_whole();
    return static_cast<int64_t>(last);
  }
  const auto counts = std::filesystem::file_size(targets, none);
  return none ? std::nullopt : std::optional(static_cast<int64_t>(counts));
}

// The largest of the 16-bit words of a file at each place of four, of those that are looked at.
struct LargestWords {
  std::array<uint16_t, 4> at{};
  int64_t words = 0;
};

LargestWords largest_words(const DataFile& file) {
  LargestWords largest{.at = {}, .words = std::min(file.bytes(), kMostLookedAt) / 2};
  const auto* const words = reinterpret_cast<const uint16_t*>(file.data());
  for (int64_t i = 0; i < largest.words; ++i) {
    uint16_t& of_place = largest.at[static_cast<size_t>(i % 4)];
    of_place = std::max(of_place, words[i]);
  }
  file.check_whole();
  return largest;
}

void check_size(const DataFile& file, int64_t width) {
  if (file.bytes() % width == 0) return;
  if (width == 2)
    fail_user(
        "the data file {} has {} bytes, an odd number, and no header of llm.c: it is not a file "
        "of uint16 tokens",
        file.path(), file.bytes());
  fail_user(
      "the data file {} has {} bytes, no multiple of 4: it is no file of uint32 tokens, as {} "
      "says",
      file.path(), file.bytes(), kKey);
}

TokenWidth given_width(const DataFile& file, int64_t width) {
  check_size(file, width);
  const int64_t other = width == 2 ? 4 : 2;
  if (const auto beside = tokens_said_beside(file); beside && *beside * other == file.bytes())
    fail_user(
        "{} is \"uint{}\", and by the file beside {} its {} tokens are uint{}: leave the key out, "
        "or remove the file beside it if it is of another one",
        kKey, 8 * width, file.path(), *beside, 8 * other);
  return {.bytes = width, .remark = ""};
}

}  // namespace

TokenWidth bare_token_width(const DataFile& file, const TokenWidthHints& hints) {
  if (hints.given != TokenDtype::automatic)
    return given_width(file, hints.given == TokenDtype::uint16 ? 2 : 4);
  check_size(file, 2);
  if (const std::optional<int64_t> beside = tokens_said_beside(file)) {
    if (*beside * 2 == file.bytes()) return {};
    if (*beside * 4 == file.bytes()) return {.bytes = 4, .remark = "uint32 by the file beside it"};
  }
  if (file.bytes() % 4 != 0) return {};
  const LargestWords largest = largest_words(file);
  const int64_t upper = std::max<int64_t>(hints.vocabulary - 1, 0) / 65536;
  const int64_t odd = std::max(largest.at[1], largest.at[3]),
                even = std::max(largest.at[0], largest.at[2]);
  if (odd > upper) return {};
  const std::string found =
      upper == 0 ? "every second 16-bit word is 0"
                 : fmt::format("every second 16-bit word is at most {}, as in ids below {}", upper,
                               hints.vocabulary);
  const bool proves = even > upper && largest.words >= kFewestWords;
  if (proves && file.bytes() % 8 == 0 && largest.at[2] == 0 && largest.at[3] == 0)
    fail_user(
        "the data file {} looks like 64-bit ids, as three of four 16-bit words are 0: write it as "
        "uint16 or uint32 (numpy: ids.astype(numpy.uint32).tofile(FILE)), or say with {} "
        "\"uint32\" "
        "that every second id is 0",
        file.path(), kKey);
  if (proves) return {.bytes = 4, .remark = fmt::format("read as uint32, because {}", found)};
  return {.bytes = 4,
          .remark = fmt::format(
              "read as uint32, because {}, which proves nothing {}: {} \"uint16\" "
              "or \"uint32\" says what the ids are",
              found, even > upper ? "in so few words" : "where the others are as small", kKey)};
}

}  // namespace dstrain
