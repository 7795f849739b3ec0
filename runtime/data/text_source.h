// Data of format `char`: a token is a character; the vocabulary is the sorted characters of the whole file.
#pragma once

#include <memory>

#include "runtime/data/token_source.h"

namespace dstrain {

// Throws UserError if the file is not UTF-8 text.
std::unique_ptr<TokenSource> open_text(std::unique_ptr<DataFile> file);

}  // namespace dstrain
