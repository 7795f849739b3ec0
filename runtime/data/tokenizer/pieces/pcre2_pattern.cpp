#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "runtime/core/error.h"
#include "runtime/data/tokenizer/pieces/foreign_pattern.h"

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
  pcre2_code* const code =
      pcre2_compile(subject_of(expression_), expression_.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
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
  while (at <= text.size()) {
    const int found = pcre2_match(compiled_->code, subject_of(text), text.size(), at,
                                  PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      fail_run("the tokenizer's pattern '{}' cannot be matched at byte {} of a text of {}: {}",
               expression_, at, text.size(), reason_of(found));
    const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(match.get());
    if (range[1] <= done || range[0] < done)
      fail_run("the tokenizer's pattern '{}' matches what it has matched before", expression_);
    if (range[0] > done) emit(static_cast<int64_t>(done), static_cast<int64_t>(range[0]));
    emit(static_cast<int64_t>(range[0]), static_cast<int64_t>(range[1]));
    done = at = range[1];
  }
  if (done < text.size()) emit(static_cast<int64_t>(done), static_cast<int64_t>(text.size()));
}

}  // namespace dstrain
