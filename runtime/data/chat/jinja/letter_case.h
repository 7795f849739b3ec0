// Upper and lower case of ASCII texts, and replacing.
#pragma once

#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/meter.h"

namespace dstrain::jinja {

// Returns `text` as Python's method `name` has it: upper, lower, title or capitalize. Throws UserError for a text that is
// not ASCII, whose letters have no table here.
Value in_case(Meter& meter, std::string_view name, const std::string& text);

// Returns `text` with `after` in the place of `before`, the first `most` times, or always if that is negative.
Value replaced(Meter& meter, std::string_view text, std::string_view before, std::string_view after,
               int64_t most);

}  // namespace dstrain::jinja
