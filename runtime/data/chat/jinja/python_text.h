// Text as Python has it: white space, characters, and how values are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

// Returns at most how many lines lines_of() returns.
size_t most_lines(std::string_view text);

// Returns where the character of a number from 0 on begins; the size of `text` if it has fewer.
size_t offset_of_character(std::string_view text, int64_t number);
// Returns where the characters of `text` begin, and its size at the end.
std::vector<size_t> character_places(std::string_view text);
// Returns the number of characters.
int64_t character_count(std::string_view text);
bool is_ascii(std::string_view text);

// Called with the bytes that are about to be made.
using CountBytes = std::function<void(size_t)>;

// Appends repr() of a string.
void append_quoted(std::string& out, std::string_view text, const CountBytes& count);
// Returns repr() of a float.
std::string real_text(double value);
// Appends `text` as a JSON string, as json.dumps(ensure_ascii=False) writes it.
void append_json_string(std::string& out, std::string_view text, const CountBytes& count);

}  // namespace dstrain::jinja
