// Lists of numbers (ranks, slots, cores) as text.
#pragma once

#include <string>
#include <vector>

namespace dstrain {

// Returns ascending numbers with consecutive ones joined: "0-3,6".
std::string ranges_text(const std::vector<int>& numbers);

// Returns 0 ... count-1.
std::vector<int> first_numbers(int count);

}  // namespace dstrain
