// The lines of a file that another process may be writing.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "runtime/core/files/input_file.h"

namespace dstrain::report {

// What has been read of a file.
struct LinesRead {
  int64_t bytes = 0;
  bool torn = false;  // the last line has no line break yet
};

// Calls `use` for each line among the first `bytes` of the file, without its line break; with an empty text for a line of
// more than a MiB. A file that has become shorter ends earlier.
LinesRead read_lines(const InputFile& file, int64_t bytes,
                     const std::function<void(std::string_view line)>& use);

}  // namespace dstrain::report
