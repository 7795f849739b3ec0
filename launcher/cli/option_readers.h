// Readers for values of options. Each throws UserError with the option's name, what was expected, and the value.
#pragma once

#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

#include "launcher/cli/command_line.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {

constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();
constexpr int64_t kMostRanks = 65536;  // of a run

// Returns all of `text` as a number from `least` to `most`.
template <class Number>
Number number_of(const std::string& option, const std::string& text, Number least, Number most,
                 const std::string& expected) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end || !(value >= least && value <= most))
    fail_user("{}: expected {}, got '{}'", option, expected, printable(text));
  return value;
}

template <class Target>
CommandLine::Reader integer(Target& target, int64_t least, int64_t most = kAnyInteger) {
  return [&target, least, most](const std::string& option, const std::string& text) {
    target = number_of<int64_t>(option, text, least, most,
                                most == kAnyInteger
                                    ? fmt::format("an integer from {} up", least)
                                    : fmt::format("an integer from {} to {}", least, most));
  };
}

// Reads a number from 1 to `most`. -1 means "not given", as in DeepSpeed.
inline CommandLine::Reader count_or_all(std::optional<int64_t>& target, int64_t most) {
  return [&target, most](const std::string& option, const std::string& text) {
    if (text == "-1")
      target.reset();
    else
      integer(target, 1, most)(option, text);
  };
}

// Reads a text that must not be empty.
template <class Target>
CommandLine::Reader text(Target& target) {
  return [&target](const std::string& option, const std::string& value) {
    if (value.empty()) fail_user("{}: the value is empty", option);
    target = value;
  };
}

}  // namespace dstrain
