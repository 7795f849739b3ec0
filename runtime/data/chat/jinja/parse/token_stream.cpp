#include "runtime/data/chat/jinja/parse/token_stream.h"

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain::jinja {

const LexedToken& TokenStream::take() {
  const LexedToken& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::skip_sign(std::string_view sign) {
  const bool found = is_sign(sign);
  if (found) take();
  return found;
}

bool TokenStream::skip_name(std::string_view name) {
  const bool found = is_name(name);
  if (found) take();
  return found;
}

const LexedToken& TokenStream::expect(TokenKind kind, std::string_view what) {
  if (!is(kind)) fail_expected(what);
  return take();
}

void TokenStream::expect_sign(std::string_view sign) {
  if (!skip_sign(sign)) fail_expected(fmt::format("'{}'", sign));
}

void TokenStream::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(fmt::format("'{}'", name));
}

void TokenStream::fail_expected(std::string_view what) {
  meter().fail(fmt::format("expected {}, found '{}'", what, printable(peek().text)));
}

}  // namespace dstrain::jinja
