// Text for people: quantities as every message and table of the program writes them.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// "1.25 GB", "12.3 MB", "999 B": decimal units, three digits.
std::string bytes_text(double bytes);

// A number that may be none, as a fmt specification such as ".4f" has it: "inf", "-inf", and "nan" whatever
// its sign.
std::string number_text(double value, std::string_view specification = "");

}  // namespace dstrain
