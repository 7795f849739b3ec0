// The reader: configuration text -> tree. Accepts JSON and common additions (comments of three kinds,
// trailing commas, a newline in place of a comma, no braces around the whole, CRLF, a byte order mark).
// Invariant: any bytes give a tree or a SyntaxError, in time and memory linear in their length.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/config/json/tree.h"

namespace dstrain {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Malformed text: the place, and what to write instead.
class SyntaxError : public std::runtime_error {
 public:
  SyntaxError(int line_number, int column_number, const std::string& message)
      : std::runtime_error(message), line(line_number), column(column_number) {}
  int line, column;  // from 1
};

// Reads a whole file, which is one object. Throws SyntaxError.
Node read_config(std::string_view text, Source source);

// Reads one value of any kind (the right side of --set). Throws SyntaxError.
Node read_value(std::string_view text, Source source);

}  // namespace dstrain
