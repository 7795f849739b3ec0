// The width of the ids of a bare token file, an array of uint16 or uint32 without a header that says which.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/job.h"
#include "runtime/data/file/data_file.h"

namespace dstrain {

// What says which width the ids of bare token files have.
struct TokenWidthHints {
  TokenDtype given = TokenDtype::automatic;  // dstrain.data.token_dtype
  int64_t vocabulary = 0;                    // ids that the model has; 0: unknown
};

struct TokenWidth {
  int64_t bytes = 2;  // of an id
  std::string
      remark;  // for the log, without the file's name: what was found out, or not; empty: nothing
};

// Returns the width of the ids of a file without llm.c's header. Where none is given, FILE.documents or FILE.targets may
// say it by the number of tokens. Else the ids are taken for uint32 if no second 16-bit word is greater than the upper half
// of the largest id of the vocabulary, which is 0 up to 65,536 ids: only the first 64 MiB are looked at, as ids of the other
// width are outside of the vocabulary. Throws UserError if the size of the file does not fit, or if it looks like 64-bit
// ids.
TokenWidth bare_token_width(const DataFile& file, const TokenWidthHints& hints);

}  // namespace dstrain
