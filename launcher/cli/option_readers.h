// Readers for values of options. Each throws UserError with the option's name, what was expected, and the value.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "launcher/cli/command_line.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {

constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();
constexpr size_t kMostDigits = std::numeric_limits<int64_t>::digits10;  // that always fit
constexpr int64_t kMostRanks = 65536;                                   // of a run

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

// Throws UserError if an option that a command needs is not given.
inline void require(const std::string& command, const std::string& option, bool given) {
  if (!given) fail_user("dstrain {} needs {} (see dstrain {} --help)", command, option, command);
}

// Reads an integer. A message names the largest one only where the text may be larger.
template <class Target>
CommandLine::Reader integer(Target& target, int64_t least, int64_t most = kAnyInteger) {
  return [&target, least, most](const std::string& option, const std::string& text) {
    const bool unlimited = most == kAnyInteger && text.size() <= kMostDigits;
    target = number_of<int64_t>(option, text, least, most,
                                unlimited ? fmt::format("an integer from {} up", least)
                                          : fmt::format("an integer from {} to {}", least, most));
  };
}

// Adds the keys of a list "a.b,c" to `target`.
inline CommandLine::Reader keys(std::vector<std::string>& target) {
  return [&target](const std::string& option, const std::string& text) {
    for (size_t begin = 0; begin <= text.size();) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      if (comma == begin) fail_user("{}: expected path.to.key, got nothing", option);
      target.push_back(text.substr(begin, comma - begin));
      begin = comma + 1;
    }
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

// Returns the numbers of a list with commas, each from `least` to `most`. `expected` describes the list.
template <class Number>
std::vector<Number> numbers_of(const std::string& option, const std::string& list, Number least,
                               Number most, const std::string& expected) {
  std::vector<Number> numbers;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t comma = std::min(list.find(',', begin), list.size());
    numbers.push_back(
        number_of<Number>(option, list.substr(begin, comma - begin), least, most, expected));
    begin = comma + 1;
  }
  return numbers;
}

// Returns the token ids of a list with commas.
inline std::vector<int32_t> token_ids(const std::string& option, const std::string& list) {
  return numbers_of<int32_t>(option, list, 0, std::numeric_limits<int32_t>::max(),
                             "token ids separated by commas (1,2,3)");
}

// Returns the bytes that a text such as "1GB", "512MiB" or "1000000" names. GB is 10^9 bytes, GiB 2^30.
inline int64_t bytes_of(const std::string& option, const std::string& text) {
  if (const std::optional<int64_t> bytes = parse_bytes(text)) return *bytes;
  fail_user("{}: expected a number of bytes such as 1GB, 512MiB or 1048576{}, got '{}'", option,
            text.size() > kMostDigits ? fmt::format(", at most {}", kAnyInteger) : "",
            printable(text));
}

// Throws UserError if `value` is not UTF-8: it may go to other hosts or into files, as JSON.
inline void require_utf8(const std::string& option, const std::string& value) {
  if (first_invalid_utf8(value) != std::string::npos)
    fail_user("{}: expected UTF-8, as paths have to be, got '{}': rename it", option,
              printable(value));
}

// Reads a text that must not be empty.
template <class Target>
CommandLine::Reader text(Target& target) {
  return [&target](const std::string& option, const std::string& value) {
    if (value.empty()) fail_user("{}: the value is empty", option);
    require_utf8(option, value);
    target = value;
  };
}

}  // namespace dstrain
