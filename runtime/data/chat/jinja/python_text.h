// Text as Python has it: white space, characters, and how values are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain::jinja {

// Returns whether str.isspace() is true of the character.
bool is_space(uint32_t code);

enum class Ends { both, left, right };
// Returns `text`, UTF-8, without white space at its ends; or without characters of `characters` if that is not null.
std::string_view stripped(std::string_view text, Ends ends,
                          const std::string_view* characters = nullptr);

// Returns where the first white space begins, the size if there is none.
size_t first_space(std::string_view text);
// Returns str.splitlines().
std::vector<std::string_view> lines_of(std::string_view text);

// Returns where the characters of `text` begin, and its size at the end.
std::vector<size_t> character_places(std::string_view text);
// Returns the number of characters.
int64_t character_count(std::string_view text);
bool is_ascii(std::string_view text);

// Returns repr() of a string, and of a float.
std::string quoted_text(std::string_view text);
std::string real_text(double value);
// Appends `text` as a JSON string, as json.dumps(ensure_ascii=False) writes it.
void append_json_string(std::string& out, std::string_view text);

}  // namespace dstrain::jinja
