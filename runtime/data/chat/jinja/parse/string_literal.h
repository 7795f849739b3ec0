// Strings of a template's expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dstrain::jinja {

// Returns the text that a string literal stands for, without its quotes: Python's escapes. Nothing if it has an escape
// that names no character.
std::optional<std::string> unescaped(std::string_view literal);

}  // namespace dstrain::jinja
