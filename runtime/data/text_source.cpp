#include "runtime/data/text_source.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/data/file/file_kind.h"
#include "runtime/data/text_scan.h"
#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

constexpr size_t kMostNamed = 10;  // characters in a message

class TextSource : public TokenSource {
 public:
  TextSource(std::unique_ptr<DataFile> file, const Vocabulary* vocabulary, std::string_view owner)
      : file_(std::move(file)),
        begin_(text_begin(*file_)),
        text_(file_->data() + begin_),
        scan_(scan_text(text_, file_->bytes() - begin_, file_->path())) {
    if (vocabulary) {
      check_known(*vocabulary, owner);
      vocabulary_ = *vocabulary;
    } else {
      vocabulary_.format = DataFormat::characters;
      vocabulary_.characters = std::move(scan_.distinct);
      vocabulary_.size = static_cast<int64_t>(vocabulary_.characters.size());
    }
    ids_.resize(vocabulary_.characters.back() + 1);
    for (size_t id = 0; id < vocabulary_.characters.size(); ++id)
      ids_[vocabulary_.characters[id]] = static_cast<int32_t>(id);
  }

  int64_t tokens() const override { return scan_.characters; }
  std::string_view unit() const override { return "character"; }
  const DataFile& file() const override { return *file_; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void read(int64_t begin, int64_t count, int32_t* inputs, int32_t* targets) const override {
    if (scan_.starts_before.empty()) {
      const unsigned char* text = text_ + begin;
      for (int64_t i = 0; i < count; ++i) inputs[i] = ids_[text[i]];
      for (int64_t i = 0; i < count; ++i) targets[i] = ids_[text[i + 1]];
      return;
    }
    const unsigned char* text = text_ + byte_of_character(scan_, text_, begin);
    for (int64_t i = 0; i <= count; ++i) {
      const utf8::Character c = utf8::decode_valid(text);
      const int32_t id = ids_[c.code];
      if (i < count) inputs[i] = id;
      if (i > 0) targets[i - 1] = id;
      text += c.bytes;
    }
  }

  std::optional<int64_t> bytes_of(int64_t begin, int64_t end) const override {
    return offset_of(end) - offset_of(begin);
  }

  void check_ids(int64_t, int64_t, const VocabularyKey&) override {
  }  // all ids are positions in the vocabulary

 private:
  // Returns where a character begins, or where the text ends.
  int64_t offset_of(int64_t character) const {
    if (character == scan_.characters) return file_->bytes() - begin_;
    return scan_.starts_before.empty() ? character : byte_of_character(scan_, text_, character);
  }

  // Throws UserError if the text has characters that are not in the vocabulary, which is that of `owner`.
  void check_known(const Vocabulary& vocabulary, std::string_view owner) const {
    std::map<uint32_t, int64_t> unknown;  // by character, how often it occurs
    for (const uint32_t code : scan_.distinct)
      if (!std::ranges::binary_search(vocabulary.characters, code)) unknown[code] = 0;
    if (unknown.empty()) return;
    int64_t all = 0;
    for (const unsigned char *at = text_, *end = file_->data() + file_->bytes(); at < end;) {
      const utf8::Character c = utf8::decode_valid(at);
      if (const auto found = unknown.find(c.code); found != unknown.end()) {
        ++found->second;
        ++all;
      }
      at += c.bytes;
    }
    std::vector<std::pair<uint32_t, int64_t>> often(unknown.begin(), unknown.end());
    std::ranges::stable_sort(often, std::ranges::greater{}, &std::pair<uint32_t, int64_t>::second);
    std::string names;
    for (size_t i = 0; i < std::min(often.size(), kMostNamed); ++i)
      names += fmt::format("{}{} {}", i == 0 ? "" : ", ", character_text(often[i].first),
                           counted(often[i].second, "time"));
    if (often.size() > kMostNamed) names += fmt::format(" and {} more", often.size() - kMostNamed);
    fail_user(
        "the data file {} has {} of {} that are not in the vocabulary of {} ({}): {}; replace "
        "them or leave them out",
        file_->path(), counted(all, "character"), scan_.characters, owner,
        counted(vocabulary.size, "character"), names);
  }

  std::unique_ptr<DataFile> file_;
  int64_t begin_;  // behind a byte order mark
  const unsigned char* text_;
  TextScan scan_;
  Vocabulary vocabulary_;
  std::vector<int32_t> ids_;  // by code point
};

}  // namespace

std::unique_ptr<TokenSource> open_text(std::unique_ptr<DataFile> file, const Vocabulary* vocabulary,
                                       std::string_view owner) {
  return std::make_unique<TextSource>(std::move(file), vocabulary, owner);
}

}  // namespace dstrain
