#include "runtime/core/error.h"
#include "runtime/data/tokenizer/pieces/foreign_pattern.h"

namespace dstrain {

struct ForeignPattern::Compiled {};

ForeignPattern::ForeignPattern(std::string expression, const std::string& where)
    : expression_(std::move(expression)) {
  fail_user(
      "{}: the pattern '{}' is none of the published ones, and needs PCRE2, which this dstrain was "
      "built without: install libpcre2-dev (scripts/install_deps.sh does) and build it again",
      where, expression_);
}

ForeignPattern::~ForeignPattern() = default;

void ForeignPattern::scan(std::string_view, const std::function<void(int64_t, int64_t)>&) const {}

}  // namespace dstrain
