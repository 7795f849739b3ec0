// TokenSource: a data file as one sequence of token ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/data/file/data_file.h"
#include "runtime/data/vocabulary.h"

namespace dstrain {

// The number of token ids that the model has, and the key of the configuration that says it.
struct VocabularyKey {
  int64_t size = 0;  // 0: unknown
  std::string key;
};

// What FILE.targets has for a token of an answer that is not desirable, which counts in the loss as others do.
inline constexpr uint8_t kUndesirable = 2;

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t tokens() const = 0;
  virtual std::string_view unit() const = 0;  // what a token is, for messages: "character"
  virtual const DataFile& file() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;

  // Writes ids begin .. begin+count-1 into `inputs`, and begin+1 .. begin+count into `targets`. Allocates
  // nothing.
  virtual void read(int64_t begin, int64_t count, int32_t* inputs, int32_t* targets) const = 0;

  // Makes -1 of the labels of tokens [begin, begin+count) that do not count in the loss.
  virtual void ignore(int64_t /*begin*/, int64_t /*count*/, int32_t* /*labels*/) const {}
  // The file that says which tokens count; null: none does.
  virtual const DataFile* targets_file() const { return nullptr; }

  // Returns the bytes of an id in a file without a header that says it; 0: it has one, or needs none.
  virtual int64_t bare_width() const { return 0; }
  // Returns what was found out, or was not, about how the file is to be read; empty: there was no doubt.
  virtual std::string_view remark() const { return {}; }

  // Returns the bytes of text that the tokens [begin, end) are; nothing where that is unknown.
  virtual std::optional<int64_t> bytes_of(int64_t begin, int64_t end) const = 0;

  // Checks the ids of [begin, end), which a run will read. Throws UserError if one is not below
  // `given.size`. Enlarges the vocabulary to the largest id.
  virtual void check_ids(int64_t begin, int64_t end, const VocabularyKey& given) = 0;
};

// Returns "; FILE is " and the source's remark; empty if it has none.
std::string remark_text(const TokenSource& source);

}  // namespace dstrain
