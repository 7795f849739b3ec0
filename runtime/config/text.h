// Text helpers of the configuration and the command line. All functions are pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// Returns the offset of the first byte that does not belong to valid UTF-8, or npos.
size_t first_invalid_utf8(std::string_view text);
// Appends the code point `code` to `out`.
void append_utf8(std::string& out, uint32_t code);

std::string lower_case(std::string_view text);  // ASCII

// Returns whether `text` is a number in JSON's grammar.
bool is_json_number(std::string_view text);

// Returns `text` for a message: at most 60 characters on one line, control characters and invalid bytes as
// '?'.
std::string printable(std::string_view text);

// Returns "1 rank", "3 ranks"; "3 batches" where `plural` is "es".
std::string counted(int64_t count, std::string_view what, std::string_view plural = "s");

// Returns "1, 2 or 4" for numbers that are all allowed.
std::string alternatives(const std::vector<int64_t>& numbers);

// Returns the edit distance with transpositions of neighbours (Damerau-Levenshtein); case does not count,
// and '-' equals '_'.
int edit_distance(std::string_view a, std::string_view b);

// Returns the candidate nearest to `word`, or an empty string where none is near enough.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// Returns whether the texts differ in case, '-', '_' and blanks alone.
bool same_letters(std::string_view a, std::string_view b);

// Returns whether `word` is one of the words of `list` ("a|b|c").
bool one_of(std::string_view list, std::string_view word);
// Returns the words of `list`.
std::vector<std::string> split_words(std::string_view list);

// A text such as "1.5GB": its number, and the bytes of its unit; 0 if it has none. GB is 10^9 bytes, GiB 2^30.
struct ByteText {
  std::string_view number;
  double unit = 0;
};
ByteText split_bytes(std::string_view text);
inline constexpr double kMostUnits = 1e6;  // that a text may name, so that bytes fit into int64_t

// Returns the bytes that a text such as "1GB", "512MiB" or "1000000" names; nothing if it names none.
std::optional<int64_t> parse_bytes(std::string_view text);

}  // namespace dstrain
