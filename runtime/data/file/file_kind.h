// Recognizes data files that are not plain UTF-8 text (compressed, in another encoding, or made of records that
// hold the text), and says how to convert them.
#pragma once

#include <cstdint>

#include "runtime/data/file/data_file.h"

namespace dstrain {

// Returns the offset of the text: behind a UTF-8 byte order mark, else 0. Throws UserError if the file begins
// like a compressed one or like UTF-16 or UTF-32, or has nothing but the mark.
int64_t text_begin(const DataFile& file);

// Throws UserError if the file's name or first line shows that it holds records, JSON, CSV or a table instead of
// text, or if it has a byte 0. For format "auto" only: format "char" takes any UTF-8 file as it is.
void refuse_doubtful(const DataFile& file);

}  // namespace dstrain
