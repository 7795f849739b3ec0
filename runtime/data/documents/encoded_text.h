// A text as token ids in memory, for what reads it once.
#pragma once

#include <memory>
#include <string>

#include "runtime/data/documents/documents.h"
#include "runtime/data/token_source.h"
#include "runtime/data/tokenizer/tokenizer.h"

namespace dstrain {

// Encodes a file as encode_file() does. Knows the bytes of all its tokens, and of all but the first, where all count in the
// loss and none is of a conversation. Throws UserError for the file, RunError if it changes meanwhile.
std::unique_ptr<TokenSource> open_encoded_text(const Tokenizer& tokenizer, const std::string& path,
                                               const LineOptions& options, DocumentCounts& counts);

}  // namespace dstrain
