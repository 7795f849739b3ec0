// Upper and lower case of ASCII texts, and replacing.
#pragma once

#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/meter.h"

namespace dstrain::jinja {

// Returns `text` as Python's method `name` has it: upper, lower, title or capitalize. Throws UserError for a text that is
// not ASCII, whose letters have no table here.
Value in_case(Meter& meter, std::string_view name, const std::string& text);

// Returns `text` as Jinja's filter title has it: words begin behind white space and any of -({[<, and not behind an
// apostrophe, as they do for Python's title. Throws UserError for a text that is not ASCII.
Value titled(Meter& meter, const std::string& text);

// Returns `text` with `after` in the place of `before`, the first `most` times, or always if that is negative.
Value replaced(Meter& meter, std::string_view text, std::string_view before, std::string_view after,
               int64_t most);

}  // namespace dstrain::jinja
