// Text for people: quantities as every message and table of the program writes them.
#pragma once

#include <string>

namespace dstrain {

// "1.25 GB", "12.3 MB", "999 B": decimal units, three digits.
std::string bytes_text(double bytes);

}  // namespace dstrain
