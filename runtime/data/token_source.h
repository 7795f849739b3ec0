// TokenSource: a file as one sequence of ids. Stands on data_file.h and text_scan.h. Invariant: the
// ids are a pure function of the file and the format; reading allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/data/data_file.h"
#include "runtime/data/vocabulary.h"

namespace dstrain {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t tokens() const = 0;
  virtual std::string_view unit() const = 0;  // what a token is: "characters"
  virtual const DataFile& file() const = 0;
  virtual const Vocabulary& vocabulary() const = 0;

  // Ids begin .. begin+count-1 into `inputs`, and those one further on into `targets`.
  virtual void read(int64_t begin, int64_t count, int32_t* inputs, int32_t* targets) const = 0;

  // Looks at the ids of [begin, end), which a run will use: each must be below `vocab_size`, else
  // UserError. The vocabulary's size grows to what they need.
  virtual void check_ids(int64_t begin, int64_t end, int64_t vocab_size) = 0;
};

// Each throws UserError where the file is not of the format.
std::unique_ptr<TokenSource> open_text(std::unique_ptr<DataFile> file);
std::unique_ptr<TokenSource> open_bytes(std::unique_ptr<DataFile> file);
std::unique_ptr<TokenSource> open_token_file(std::unique_ptr<DataFile> file);

// Whether the file starts with the header of llm.c's token files.
bool has_token_header(const DataFile& file);

}  // namespace dstrain
