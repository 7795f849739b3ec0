// The tokens of a chat template, as Jinja divides it with trim_blocks and lstrip_blocks, which transformers set.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dstrain::jinja {

enum class TokenKind {
  data,          // text of the template, as it is to be written
  output_begin,  // {{
  output_end,    // }}
  block_begin,   // {%
  block_end,     // %}
  name,
  string,  // without quotes and escapes
  integer,
  real,
  sign,  // an operator or a bracket
  end    // of the template
};

struct LexedToken {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 1;
};

// Divides a template. The last token is `end`. Throws UserError, "SOURCE: line 3: ...", for what is no token.
std::vector<LexedToken> lex_template(std::string_view text, const std::string& source);

}  // namespace dstrain::jinja
