// A table as text, each column as wide as its longest cell. Stands on nothing.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace dstrain {

// Returns a line per row; two blanks between columns, the last `numbers` of them ragged on the left. All
// rows have the same number of cells.
std::string text_table(const std::vector<std::vector<std::string>>& rows, size_t numbers);

}  // namespace dstrain
