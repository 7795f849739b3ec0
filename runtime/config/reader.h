// Reader: configuration text -> Tree. Takes JSON and what people add to it (comments of three kinds,
// trailing commas, a newline in place of a comma, no braces around the whole, CRLF, a BOM), refuses
// everything else with one error that has a place and says what to write.
// Invariant: any bytes give a tree or a SyntaxError, in time and memory linear in their length.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/config/tree.h"

namespace dstrain {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;

class SyntaxError : public std::runtime_error {
 public:
  SyntaxError(int line_number, int column_number, const std::string& message)
      : std::runtime_error(message), line(line_number), column(column_number) {}
  int line, column;
};

// A whole file: one object. Throws SyntaxError.
Node read_config(std::string_view text, Source source);

// One value of any kind (the right side of --set). Throws SyntaxError.
Node read_value(std::string_view text, Source source);

// The bytes of the file at `path`; `what` names it in errors ("--config"). Throws UserError where it is
// missing, a directory, unreadable, or longer than kMaxConfigBytes.
std::string read_text_file(const std::string& path, std::string_view what);

}  // namespace dstrain
