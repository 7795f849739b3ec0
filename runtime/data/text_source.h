// Data of format `char`: a token is a character; the vocabulary is the sorted characters of the whole file, or one that
// is given.
#pragma once

#include <memory>

#include "runtime/data/token_source.h"
#include "runtime/data/vocabulary.h"

namespace dstrain {

// `vocabulary`: that of another run; null: the file's own. Throws UserError if the file is not UTF-8 text, or has
// characters that are not in the vocabulary, which it names with their numbers.
std::unique_ptr<TokenSource> open_text(std::unique_ptr<DataFile> file,
                                       const Vocabulary* vocabulary = nullptr);

}  // namespace dstrain
