// ForeignPattern: a regular expression that is none of the published ones, by PCRE2. A build without PCRE2 refuses it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace dstrain {

class ForeignPattern {
 public:
  // Throws UserError, which begins with `where`, if PCRE2 is not in this build or does not take the expression.
  ForeignPattern(std::string expression, const std::string& where);
  ~ForeignPattern();

  // Calls emit(begin, end) for each match and for each text between matches, in order. `text` must be valid UTF-8.
  // Throws RunError if a match takes more steps than PCRE2 allows.
  void scan(std::string_view text, const std::function<void(int64_t, int64_t)>& emit) const;

 private:
  struct Compiled;
  std::string expression_;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace dstrain
