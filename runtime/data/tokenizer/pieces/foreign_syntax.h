// The syntax of regular expressions in a tokenizer.json, which is Oniguruma's for Ruby, in PCRE2's words.
#pragma once

#include <string>
#include <string_view>

namespace dstrain {

// Returns the expression as PCRE2 has to be given it (with ^ and $ at lines, and \n alone as the end of a line) to match as
// the tokenizers library does. Throws UserError, which begins with `where`, for what PCRE2 has none of or reads otherwise.
// What neither takes is left to PCRE2.
std::string pcre2_expression(std::string_view expression, const std::string& where);

}  // namespace dstrain
