#include "launcher/placement/hostfile.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <unordered_map>

#include "launcher/cli/option_readers.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr size_t kLongestName = 253;  // of a domain name
constexpr const char* kNoIpv6 =
    "holds ':': give an IPv6 address a name in the ssh configuration (HostName) or /etc/hosts";
constexpr std::string_view kBlanks = " \t\r";

bool letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool letter_or_digit_or(char c, std::string_view others) {
  return letter_or_digit(c) || others.find(c) != std::string_view::npos;
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

class Parser {
 public:
  explicit Parser(const std::string& path) { file_.path = path; }

  Hostfile parse(std::string_view text) {
    text = without_byte_order_mark(text);
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      read_line(without_blanks(text.substr(0, end)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (file_.hosts.empty())
      fail_user("{} names no host: expected lines 'NAME slots=N'", file_.path);
    return std::move(file_);
  }

 private:
  void read_line(std::string_view line) {
    if (line.empty() || line.starts_with('#')) return;
    if (std::ranges::any_of(line,
                            [](char c) { return (c >= 0 && c < ' ' && c != '\t') || c == 127; }))
      fail_user("{}: '{}' holds a control character: expected 'NAME slots=N' as plain text",
                where(), printable(line));
    const size_t name_end = std::min(line.find_first_of(kBlanks), line.size());
    const std::string_view name = line.substr(0, name_end);
    std::string_view rest = without_blanks(line.substr(name_end));
    constexpr std::string_view key = "slots=";
    int slots = 0;
    const std::string_view before = take_open_mpi_words(rest);
    const char* const end = rest.data() + rest.size();
    if (!rest.starts_with(key)) bad_entry(line);
    const auto [stop, status] = std::from_chars(rest.data() + key.size(), end, slots);
    // A number like "0x10" is refused. DeepSpeed reads it as 0.
    const bool radix = stop != end && (*stop == 'x' || *stop == 'X');
    if (status == std::errc::invalid_argument || slots < 0 || radix) bad_entry(line);
    if (status != std::errc() || slots > kMostRanks)
      fail_user("{}: expected at most slots={}, got '{}'", where(), kMostRanks, printable(rest));
    refuse_longer_number(rest.substr(key.size()), slots);
    if (const std::string error = host_name_error(name); !error.empty())
      fail_user("{}: the host name '{}' {}", where(), printable(name), error);
    add(std::string(name), slots);
    if (!before.empty())
      file_.warnings.push_back(
          fmt::format("{}: '{}' before slots={} is ignored", where(), printable(before), slots));
    const std::string_view after(stop, static_cast<size_t>(end - stop));
    const std::string_view ignored = without_blanks(after.substr(0, after.find('#')));
    if (!ignored.empty())
      file_.warnings.push_back(
          fmt::format("{}: '{}' after slots={} is ignored", where(), printable(ignored), slots));
  }

  // Takes the words from `rest` that may stand before slots= in Open MPI's hostfiles, and returns them.
  static std::string_view take_open_mpi_words(std::string_view& rest) {
    const std::string_view all = rest;
    while (rest.starts_with("max_slots=") || rest.starts_with("max-slots="))
      rest = without_blanks(rest.substr(std::min(rest.find_first_of(kBlanks), rest.size())));
    return without_blanks(all.substr(0, all.size() - rest.size()));
  }

  // Throws UserError if `text`, which begins with the digits of `slots`, goes on as a number: 1e3, 1.5, 1_000. DeepSpeed
  // takes the digits, and the run would silently have fewer ranks than the file says.
  void refuse_longer_number(std::string_view text, int slots) const {
    const std::string_view word = text.substr(0, text.find_first_of(" \t\r,#;"));
    const size_t digits = word.find_first_not_of("0123456789");
    if (digits == std::string_view::npos || !letter_or_digit_or(word[digits], "._+-")) return;
    double value = 0;
    const auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    const bool whole = status == std::errc() && stop == word.data() + word.size() &&
                       value == std::floor(value) && value <= kMostRanks;
    fail_user(
        "{}: 'slots={}' is not a whole number in digits, of which DeepSpeed would take {}: write "
        "slots={}",
        where(), printable(word), slots, whole ? fmt::format("{:.0f}", value) : "N");
  }

  void add(std::string name, int slots) {
    const auto [known, is_new] = line_of_.try_emplace(name, line_);
    if (!is_new)
      fail_user("{}: host '{}' is already in line {}: give each host one line with all its slots",
                where(), name, known->second);
    file_.hosts.push_back({std::move(name), slots, line_});
  }

  [[noreturn]] void bad_entry(std::string_view line) const {
    fail_user("{}: expected 'NAME slots=N', got '{}'", where(), printable(line));
  }

  std::string where() const { return fmt::format("{}:{}", file_.path, line_); }

  Hostfile file_;
  std::unordered_map<std::string, int> line_of_;
  int line_ = 0;
};

}  // namespace

std::string host_name_error(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kLongestName) return fmt::format("is longer than {} characters", kLongestName);
  if (name.starts_with('-')) return "begins with '-', which programs read as an option";
  if (name.starts_with('[') && name.find(':') != std::string_view::npos) return kNoIpv6;
  for (const char c : name) {
    if (letter_or_digit(c) || c == '.' || c == '-' || c == '_') continue;
    if (c == '@')
      return "holds '@': the user's name belongs into the ssh configuration (User), not here";
    if (c == ':' && std::ranges::count(name, ':') == 1)
      return "holds ':': a port belongs into the ssh configuration (Port) or --ssh_port, not here";
    if (c == ':') return kNoIpv6;
    return "holds a character other than letters, digits, '.', '-' and '_'";
  }
  if (name.starts_with('.')) return "begins with '.'";
  return "";
}

Hostfile parse_hostfile(std::string_view text, const std::string& path) {
  return Parser(path).parse(text);
}

Hostfile read_hostfile(const std::string& path) {
  return parse_hostfile(read_input_file(path, "the hostfile", kMostBytes), path);
}

}  // namespace dstrain
