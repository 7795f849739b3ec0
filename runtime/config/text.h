// Small words about text that the reader and the judge share. Stands on nothing.
// Invariant: pure functions; what `printable` returns is ASCII or whole UTF-8 characters on one line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// Offset of the first byte that does not belong to valid UTF-8, or npos.
size_t first_invalid_utf8(std::string_view text);
void append_utf8(std::string& out, uint32_t code);

std::string lower_case(std::string_view text);  // ASCII

// Whether `text` is a number in JSON's grammar.
bool is_json_number(std::string_view text);

// `text` fit for a message: at most 60 characters, control characters as '?'.
std::string printable(std::string_view text);

// "1 rank", "3 ranks".
std::string counted(int64_t count, std::string_view what);

// Edit distance with transpositions (Damerau-Levenshtein, adjacent), case and '-'/'_' ignored.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, or empty where none is near enough to be meant.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace dstrain
