// Values as JSON, and JSON as values.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/data/chat/jinja/meter.h"

namespace dstrain::jinja {

// The parameters of json.dumps.
struct JsonStyle {
  int64_t indent = -1;  // spaces of a level; below 0: all on one line
  std::string between = ", ", behind_name = ": ";
  bool sort_keys = false;
};

// Returns json.dumps(value, ensure_ascii=False) in a style. Throws UserError for values that JSON has not.
Value json_text(Meter& meter, const Value& value, const JsonStyle& style);

// Parses JSON; members keep their order, and of members of one name the last one stays, in the first one's place.
// Throws UserError, "byte 12: ..." or the parser's message, for what is no JSON or nested more than 64 deep, and for
// integers beyond 64 bits in those members of the outermost object that `exact` names; others become floats.
Value parse_json(std::string_view text, std::span<const std::string_view> exact = {});

// Returns the name of a value's type in JSON, "string".
std::string json_type(const Value& value);

}  // namespace dstrain::jinja
