// DocumentFile: FILE.documents beside a token file, which says where its documents begin (docs/formats.md, tokenize).
#pragma once

#include <memory>

#include "runtime/data/file/data_file.h"
#include "runtime/data/token_source.h"

namespace dstrain {

class DocumentFile {
 public:
  // Opens the file of documents beside `tokens`. Throws UserError if there is none, or if its documents do not end at the
  // last token.
  explicit DocumentFile(const TokenSource& tokens);

  int64_t documents() const { return file_->bytes() / 8 - 1; }
  // Returns the token at which a document begins; behind the last document, the number of tokens.
  int64_t begin(int64_t document) const;
  // Returns the tokens of the longest document.
  int64_t longest() const;
  const DataFile& file() const { return *file_; }

 private:
  std::unique_ptr<DataFile> file_;
};

}  // namespace dstrain
