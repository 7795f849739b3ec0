// Quantities as text, in the form that all messages and tables of the program use.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// Returns "1.25 GB", "12.3 MB", "999 B": decimal units, three digits.
std::string bytes_text(double bytes);

// Returns `value` in a fmt format such as ".4f"; "inf", "-inf", or "nan" with either sign.
std::string number_text(double value, std::string_view specification = "");

}  // namespace dstrain
