#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <optional>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/pieces/foreign_pattern.h"
#include "runtime/data/tokenizer/pieces/foreign_syntax.h"
#include "runtime/data/utf8.h"

namespace dstrain {
namespace {

PCRE2_SPTR subject_of(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

std::string reason_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct ContextDelete {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

struct MatchDelete {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

}  // namespace

struct ForeignPattern::Compiled {
  pcre2_code* code;
};

ForeignPattern::ForeignPattern(std::string expression, const std::string& where)
    : expression_(std::move(expression)) {
  int error = 0;
  PCRE2_SIZE at = 0;
  const std::string translated = pcre2_expression(expression_, where);
  const std::unique_ptr<pcre2_compile_context, ContextDelete> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* const code =
      pcre2_compile(subject_of(translated), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                    context.get());
  if (code == nullptr)
    fail_user("{}: PCRE2 does not take the pattern: {} at offset {} of it", where, reason_of(error),
              at);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without it matches are slower
  compiled_ = std::make_unique<Compiled>(Compiled{code});
}

ForeignPattern::~ForeignPattern() {
  if (compiled_) pcre2_code_free(compiled_->code);
}

void ForeignPattern::scan(std::string_view text,
                          const std::function<void(int64_t, int64_t)>& emit) const {
  const std::unique_ptr<pcre2_match_data, MatchDelete> match(
      pcre2_match_data_create_from_pattern(compiled_->code, nullptr));
  size_t done = 0, at = 0;  // the end of what was emitted; where the next match may begin
  const auto emit_until = [&](size_t end) {
    if (end > done) emit(static_cast<int64_t>(done), static_cast<int64_t>(end));
    done = end;
  };
  std::optional<size_t> last;  // the end of the last match
  while (at <= text.size()) {
    const int found = pcre2_match(compiled_->code, subject_of(text), text.size(), at,
                                  PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      fail_run("the tokenizer's pattern '{}' cannot be matched at byte {} of a text of {}: {}",
               expression_, at, text.size(), reason_of(found));
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(match.get());
    if (range[1] < range[0] || range[0] < done)
      fail_run("the tokenizer's pattern '{}' matches what it has matched before", expression_);
    // A match of nothing ends a piece, but not where the last match has ended: the library goes on a character later.
    if (range[0] == range[1] && last == range[1]) {
      if (at == text.size()) break;
      at += static_cast<size_t>(
          utf8::decode_valid(reinterpret_cast<const unsigned char*>(text.data()) + at).bytes);
      continue;
    }
    emit_until(range[0]);
    emit_until(range[1]);
    last = at = range[1];
  }
  emit_until(text.size());
}

}  // namespace dstrain
