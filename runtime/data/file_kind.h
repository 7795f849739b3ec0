// What a file is that is not the plain UTF-8 text, and what to do about it: compressed, in another encoding,
// or of records that hold the text. Stands on data_file.h.
#pragma once

#include <cstdint>

#include "runtime/data/data_file.h"

namespace dstrain {

// Returns where the text begins: behind a UTF-8 byte order mark, else at 0. Throws UserError where the file begins as
// one that is compressed or in UTF-16 or UTF-32, and where it holds nothing but the mark.
int64_t text_begin(const DataFile& file);

// Throws UserError where the file's name or first line says that it holds records, JSON, CSV or a table, and not the
// text itself, and where it has a byte 0, which text has not. For format "auto" alone: who says "char" gets the file
// as it is.
void refuse_doubtful(const DataFile& file);

}  // namespace dstrain
