#include "runtime/plan/report/text_table.h"

#include <fmt/core.h>

#include <algorithm>

namespace dstrain {

std::string text_table(const std::vector<std::vector<std::string>>& rows, size_t numbers) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string gap = i == 0 ? "" : "  ";
      line += i + numbers < row.size() ? fmt::format("{}{:<{}}", gap, row[i], widths[i])
                                       : fmt::format("{}{:>{}}", gap, row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace dstrain
