#include "runtime/config/shell_quote.h"

#include <algorithm>
#include <string_view>

namespace dstrain {
namespace {

// Not in the list, though often harmless: '=' (an assignment), '~' and '%' at the beginning of a word.
bool untouched(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("/.,:@+_-").find(c) != std::string_view::npos;
}

std::string in_quotes(const std::string& word) {
  std::string text(1, '\'');
  for (const char c : word) {
    if (c == '\'')
      text += "'\\''";  // ends the quotes, a quote by itself, begins them again
    else
      text += c;
  }
  text += '\'';
  return text;
}

}  // namespace

bool safe_without_quotes(const std::string& word) {
  return !word.empty() && std::ranges::all_of(word, untouched);
}

std::string shell_quoted(const std::string& word) {
  return safe_without_quotes(word) ? word : in_quotes(word);
}

std::string shell_command(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool may_be_keyword = text.empty() && word.find('/') == std::string::npos;
    if (!text.empty()) text += ' ';
    text += may_be_keyword ? in_quotes(word) : shell_quoted(word);
  }
  return text;
}

}  // namespace dstrain
