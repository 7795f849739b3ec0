// A table as text, each column as wide as its longest cell.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dstrain {

// Returns a line for each row, with two blanks between columns; the last `numbers` columns are aligned to the
// right. All rows must have the same number of cells.
std::string text_table(const std::vector<std::vector<std::string>>& rows, size_t numbers);

}  // namespace dstrain
