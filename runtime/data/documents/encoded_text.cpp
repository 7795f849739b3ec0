#include "runtime/data/documents/encoded_text.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

class EncodedText : public TokenSource {
 public:
  EncodedText(const Tokenizer& tokenizer, const std::string& path, const LineOptions& options,
              DocumentCounts& counts)
      : file_(path) {
    const DocumentCounts before = counts;
    encode_file(tokenizer, path, options, counts, [this](const EncodedPart& part, int64_t) {
      ids_.insert(ids_.end(), part.ids.begin(), part.ids.end());
      counts_.insert(counts_.end(), part.counts.begin(), part.counts.end());
    });
    file_.check_unchanged();
    if (std::ranges::find(counts_, 0) == counts_.end()) counts_.clear();
    if (counts_.empty() && counts.conversations == before.conversations)
      bytes_ = counts.text_bytes - before.text_bytes;
    // What the post-processor puts in front of a line's document is none of its text.
    if (!ids_.empty() && !(has_json_lines(path) && tokenizer.is_special(ids_.front())))
      first_bytes_ = tokenizer.bytes_of_first(ids_.front());
  }

  int64_t tokens() const override { return std::ssize(ids_); }
  std::string_view unit() const override { return "token"; }
  const DataFile& file() const override { return file_; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void read(int64_t begin, int64_t count, int32_t* inputs, int32_t* targets) const override {
    const uint32_t* ids = ids_.data() + begin;
    for (int64_t i = 0; i < count; ++i) inputs[i] = static_cast<int32_t>(ids[i]);
    for (int64_t i = 0; i < count; ++i) targets[i] = static_cast<int32_t>(ids[i + 1]);
  }

  void ignore(int64_t begin, int64_t count, int32_t* labels) const override {
    if (counts_.empty()) return;
    const uint8_t* counts = counts_.data() + begin;
    for (int64_t i = 0; i < count; ++i)
      if (counts[i] == 0) labels[i] = -1;
  }

  std::optional<int64_t> bytes_of(int64_t begin, int64_t end) const override {
    if (!bytes_ || begin > 1 || end != tokens()) return std::nullopt;
    return *bytes_ - (begin == 1 ? first_bytes_ : 0);
  }

  void check_ids(int64_t begin, int64_t end, const VocabularyKey& given) override {
    for (int64_t i = begin; i < end; ++i) {
      const auto id = static_cast<int64_t>(ids_[static_cast<size_t>(i)]);
      if (id >= given.size)
        fail_user(
            "{}: token {} of the text is {} by the tokenizer, outside of the vocabulary: {} is {}",
            file_.path(), i, id, given.key, given.size);
      vocabulary_.size = std::max(vocabulary_.size, id + 1);
    }
  }

 private:
  DataFile file_;
  std::vector<uint32_t> ids_;
  std::vector<uint8_t> counts_;   // of each id whether it counts in the loss; empty: all do
  std::optional<int64_t> bytes_;  // of the text; nothing where they are unknown
  int64_t first_bytes_ = 0;
  Vocabulary vocabulary_{.format = DataFormat::tokens, .characters = {}, .size = 0};
};

}  // namespace

std::unique_ptr<TokenSource> open_encoded_text(const Tokenizer& tokenizer, const std::string& path,
                                               const LineOptions& options, DocumentCounts& counts) {
  return std::make_unique<EncodedText>(tokenizer, path, options, counts);
}

}  // namespace dstrain
