// The tokens of a template while it is parsed.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/chat/jinja/meter.h"
#include "runtime/data/chat/jinja/parse/lexer.h"

namespace dstrain::jinja {

class TokenStream {
 public:
  TokenStream(std::vector<LexedToken> tokens, const std::string& source)
      : tokens_(std::move(tokens)), meter_(source, {}, 0) {}

  const LexedToken& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return peek().line; }
  // Returns the next token and goes on.
  const LexedToken& take();
  bool is(TokenKind kind) const { return peek().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(TokenKind::sign) && peek().text == sign; }
  bool is_name(std::string_view name) const { return is(TokenKind::name) && peek().text == name; }
  // Goes on if the next token is this one; returns whether it is.
  bool skip_sign(std::string_view sign);
  bool skip_name(std::string_view name);
  // Throw UserError if the next token is another one.
  const LexedToken& expect(TokenKind kind, std::string_view what);
  void expect_sign(std::string_view sign);
  void expect_name(std::string_view name);

  // Throws UserError: "SOURCE: line 3: expected WHAT, found 'x'".
  [[noreturn]] void fail_expected(std::string_view what);
  // Counts levels and steps of the parser.
  Meter& meter() {
    meter_.at(line());
    return meter_;
  }

 private:
  std::vector<LexedToken> tokens_;
  size_t at_ = 0;
  Meter meter_;
};

}  // namespace dstrain::jinja
