#include "runtime/data/array_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
#include "runtime/data/file/token_sums.h"

namespace dstrain {
namespace {

constexpr int64_t kHeaderBytes = 256 * 4;
constexpr std::array<int32_t, 2> kMagics = {20240520, 20240801};

// What is known of a token file before it is read.
struct TokenFileFacts {
  std::unique_ptr<DataFile> targets;  // null: all tokens count in the loss
  int64_t ids = 0;                    // the largest id of the file + 1; 0: unknown
  bool bare = false;                  // no header says how wide ids are
  std::string remark;
};

template <class Id>
class ArraySource : public TokenSource {
 public:
  ArraySource(std::unique_ptr<DataFile> file, int64_t offset, Vocabulary vocabulary,
              std::string_view unit, TokenFileFacts facts = {})
      : file_(std::move(file)),
        facts_(std::move(facts)),
        targets_(facts_.targets.get()),
        offset_(offset),
        ids_(reinterpret_cast<const Id*>(file_->data() + offset)),
        vocabulary_(std::move(vocabulary)),
        unit_(unit) {
    if (targets_ && targets_->bytes() != tokens())
      fail_user(
          "{} has {} bytes, and {} has {} tokens: it is of another token file, or cut short; make "
          "both again, or remove it where all tokens are to count in the loss",
          targets_->path(), targets_->bytes(), file_->path(), tokens());
  }

  int64_t tokens() const override {
    return (file_->bytes() - offset_) / static_cast<int64_t>(sizeof(Id));
  }
  std::string_view unit() const override { return unit_; }
  const DataFile& file() const override { return *file_; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void read(int64_t begin, int64_t count, int32_t* inputs, int32_t* targets) const override {
    const Id* ids = checked_ids(begin, begin + count + 1);
    for (int64_t i = 0; i < count; ++i) inputs[i] = static_cast<int32_t>(ids[i]);
    for (int64_t i = 0; i < count; ++i) targets[i] = static_cast<int32_t>(ids[i + 1]);
  }

  void ignore(int64_t begin, int64_t count, int32_t* labels) const override {
    if (!targets_) return;
    const unsigned char* counts = targets_->checked(begin, count);
    for (int64_t i = 0; i < count; ++i)
      if (counts[i] == 0) labels[i] = -1;
  }
  const DataFile* targets_file() const override { return targets_; }
  int64_t bare_width() const override { return facts_.bare ? sizeof(Id) : 0; }
  std::string_view remark() const override { return facts_.remark; }

  std::optional<int64_t> bytes_of(int64_t begin, int64_t end) const override {
    if (vocabulary_.format != DataFormat::bytes) return std::nullopt;
    return end - begin;
  }

  void check_ids(int64_t begin, int64_t end, const VocabularyKey& given) override {
    if (begin >= end || vocabulary_.format == DataFormat::bytes) return;
    if (facts_.ids > 0 && facts_.ids <= given.size) {
      vocabulary_.size = std::max(vocabulary_.size, facts_.ids);
      return;
    }
    const int64_t largest = largest_id(begin, end);
    vocabulary_.size = std::max(vocabulary_.size, largest + 1);
    if (largest < given.size) return;
    const Id* bad = std::find_if(ids_ + begin, ids_ + end, [&given](Id id) {
      return static_cast<int64_t>(id) >= given.size;
    });
    const int64_t position = bad - ids_;
    fail_user(
        "the data file {} has token id {} at byte {} (token {}), outside of the vocabulary: "
        "{} is {}, and the largest id is {}; give at least {}{}",
        file_->path(), *bad, offset_ + position * static_cast<int64_t>(sizeof(Id)), position,
        given.key, given.size, largest, largest + 1,
        facts_.bare ? fmt::format(", or say with dstrain.data.token_dtype that ids are not the "
                                  "uint{} that they are read as",
                                  8 * sizeof(Id))
                    : "");
  }

 private:
  // Returns the ids from `begin` on, after comparing those of [begin, end) with the checksums of the file.
  const Id* checked_ids(int64_t begin, int64_t end) const {
    constexpr auto width = static_cast<int64_t>(sizeof(Id));
    file_->checked(offset_ + begin * width, (end - begin) * width);
    return ids_ + begin;
  }

  int64_t largest_id(int64_t begin, int64_t end) const {
    checked_ids(begin, end);
    const int64_t parts = end - begin > 1 << 20 ? thread_count() : 1;
    std::vector<Id> largest(static_cast<size_t>(parts));
    run_parts(parts, [&](int64_t part) {
      Id mine = 0;
      const int64_t to = begin + (end - begin) * (part + 1) / parts;
      for (int64_t i = begin + (end - begin) * part / parts; i < to; ++i)
        mine = std::max(mine, ids_[i]);
      largest[static_cast<size_t>(part)] = mine;
    });
    return static_cast<int64_t>(*std::max_element(largest.begin(), largest.end()));
  }

  std::unique_ptr<DataFile> file_;
  TokenFileFacts facts_;
  const DataFile* targets_;  // null: all tokens count in the loss
  int64_t offset_;
  const Id* ids_;
  Vocabulary vocabulary_;
  std::string_view unit_;
};

int32_t word(const DataFile& file, int64_t index) {
  int32_t value = 0;
  std::memcpy(&value, file.data() + 4 * index, 4);
  return value;
}

// Returns the bytes per token of a file with llm.c's header. Throws UserError if header and size do not fit.
int64_t checked_width(const DataFile& file) {
  if (file.bytes() < kHeaderBytes)
    fail_user(
        "the data file {} starts as a token file of llm.c, and its {} bytes are less than the "
        "header of {}: it is cut short",
        file.path(), file.bytes(), kHeaderBytes);
  const int32_t version = word(file, 1), tokens = word(file, 2);
  if (version != 1 && version != 7)
    fail_user(
        "the data file {} has llm.c's header with version {}, expected 1 (uint16) or 7 (uint32)",
        file.path(), version);
  const int64_t width = version == 1 ? 2 : 4;
  if (tokens < 0 || kHeaderBytes + tokens * width != file.bytes())
    fail_user(
        "the header of the data file {} states {} tokens of {} bytes, which makes a file of {} "
        "bytes, and it has {}: it is cut short or damaged",
        file.path(), tokens, width, kHeaderBytes + tokens * width, file.bytes());
  return width;
}

// Opens FILE.targets beside a token file; null if there is none.
std::unique_ptr<DataFile> open_targets(const DataFile& file) {
  const std::string path = file.path() + ".targets";
  std::error_code none;
  return std::filesystem::exists(path, none) ? std::make_unique<DataFile>(path) : nullptr;
}

}  // namespace

bool has_token_header(const DataFile& file) {
  return file.bytes() >= 4 &&
         std::find(kMagics.begin(), kMagics.end(), word(file, 0)) != kMagics.end();
}

bool is_token_file(const DataFile& file) {
  return file.path().ends_with(".bin") || has_token_header(file);
}

std::unique_ptr<TokenSource> open_bytes(std::unique_ptr<DataFile> file) {
  const Vocabulary vocabulary{.format = DataFormat::bytes, .characters = {}, .size = 256};
  return std::make_unique<ArraySource<uint8_t>>(std::move(file), 0, vocabulary, "byte");
}

std::unique_ptr<TokenSource> open_token_file(std::unique_ptr<DataFile> file,
                                             const TokenWidthHints& hints) {
  const Vocabulary vocabulary{.format = DataFormat::tokens, .characters = {}, .size = 0};
  TokenFileFacts facts{.targets = open_targets(*file), .ids = 0, .bare = false, .remark = ""};
  if (std::optional<TokenSums> sums = sums_beside(file->path())) {
    if (sums->targets.has_value() != (facts.targets != nullptr))
      fail_user("{} was {} when {} was made: remove the latter, so that the next run makes it anew",
                file->path() + ".targets", sums->targets ? "there" : "not there", file->path());
    facts.ids = sums->ids;
    file->expect(std::move(sums->tokens));
    if (sums->targets) facts.targets->expect(std::move(*sums->targets));
  }
  int64_t width = 0, offset = 0;
  if (has_token_header(*file)) {
    width = checked_width(*file);
    offset = kHeaderBytes;
    if (hints.given != TokenDtype::automatic &&
        width != (hints.given == TokenDtype::uint16 ? 2 : 4))
      fail_user(
          "dstrain.data.token_dtype is \"uint{}\", and the header of the data file {} says "
          "uint{}: leave the key out",
          8 * (6 - width), file->path(), 8 * width);
  } else {
    TokenWidth found = bare_token_width(*file, hints);
    width = found.bytes;
    facts.bare = true;
    facts.remark = std::move(found.remark);
  }
  if (width == 2)
    return std::make_unique<ArraySource<uint16_t>>(std::move(file), offset, vocabulary, "token",
                                                   std::move(facts));
  return std::make_unique<ArraySource<uint32_t>>(std::move(file), offset, vocabulary, "token",
                                                 std::move(facts));
}

}  // namespace dstrain
