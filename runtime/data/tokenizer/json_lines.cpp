#include "runtime/data/tokenizer/json_lines.h"

#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/json/json_value.h"

namespace dstrain {
namespace {

constexpr size_t kMostNames = 100;  // of ignored members that are kept

// Returns the parsed line. The number of a line is found for messages only.
nlohmann::json parsed(std::string_view line, const std::function<std::string()>& place) {
  try {
    return parse_json_text(line, "");
  } catch (const UserError& e) {
    throw UserError(place() + e.what());
  }
}

}  // namespace

bool is_blank_line(std::string_view line) {
  return line.find_first_not_of(" \t\r") == line.npos;
}

std::string text_of_json_line(std::string_view line, const std::function<std::string()>& place,
                              std::map<std::string, int64_t>& ignored) {
  nlohmann::json object = parsed(line, place);
  if (!object.is_object())
    fail_user("{}: expected an object such as {{\"text\": \"...\"}}, found {}", place(),
              object.type_name());
  for (const char* const other : {"messages", "prompt", "completion", "chosen", "rejected"})
    if (object.contains(other))
      fail_user(
          "{}: the line has \"{}\", and token files are made of lines with \"text\": give lines "
          "that have their "
          "text in it",
          place(), other);
  const auto text = object.find("text");
  if (text == object.end()) fail_user("{}: the line has no \"text\"", place());
  if (!text->is_string())
    fail_user("{}: \"text\": expected a string, found {}", place(), text->type_name());
  for (const auto& [name, value] : object.items())
    if (name != "text" && (ignored.size() < kMostNames || ignored.contains(name))) ++ignored[name];
  return std::move(text->get_ref<std::string&>());
}

}  // namespace dstrain
