// Data of format `char`: a token is a character; the vocabulary is the sorted characters of the whole file, or one that
// is given.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/data/token_source.h"
#include "runtime/data/vocabulary.h"

namespace dstrain {

// `vocabulary`: that of `owner`, as messages call it; null: the file's own. Throws UserError if the file is not UTF-8 text, or has
// characters that are not in the vocabulary, which it names with their numbers.
std::unique_ptr<TokenSource> open_text(std::unique_ptr<DataFile> file,
                                       const Vocabulary* vocabulary = nullptr,
                                       std::string_view owner = "--vocab");

}  // namespace dstrain
