// Lines of JSON that hold documents.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace dstrain {

bool is_blank_line(std::string_view line);

// Returns the document of a line, its member "text". Counts the other members in `ignored`. Throws UserError, which
// begins with what `place` returns, if the line is no object with a text, or is of another kind ("messages", "prompt",
// "chosen").
std::string text_of_json_line(std::string_view line, const std::function<std::string()>& place,
                              std::map<std::string, int64_t>& ignored);

}  // namespace dstrain
