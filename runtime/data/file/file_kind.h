// Recognizes data files that are not plain UTF-8 text (compressed, in another encoding, or made of records that
// hold the text), and says how to convert them.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/data/file/data_file.h"

namespace dstrain {

// Returns the offset of the text: behind a UTF-8 byte order mark, else 0. Throws UserError if the file begins
// like a compressed one or like UTF-16 or UTF-32, or has nothing but the mark.
int64_t text_begin(const DataFile& file);

// What the ids of a text are: a tokenizer's, where files of JSON lines are read as such, or those of characters.
enum class TextIds { tokenizer, characters };

// Returns what shows, by the file's name or first line, that it holds records, JSON, CSV or a table, instead of text, and
// what to do; empty: nothing. Throws UserError as text_begin does.
std::string doubt_of_text(const DataFile& file, TextIds ids);

// Throws UserError for such a file, and if it has a byte 0. For format "auto" only: format "char" takes any UTF-8 file as
// it is.
void refuse_doubtful(const DataFile& file, TextIds ids = TextIds::tokenizer);

}  // namespace dstrain
