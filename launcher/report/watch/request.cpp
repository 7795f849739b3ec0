#include "launcher/report/watch/request.h"

#include <algorithm>

#include "runtime/config/text.h"

namespace dstrain::report {
namespace {

constexpr int kBad = 400, kForbidden = 403, kMethod = 405, kTooLong = 431;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Takes a line with its line break off the text.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Returns the offset behind the empty line that ends a head, or npos.
size_t end_of_head(std::string_view text) {
  const size_t with_returns = text.find("\r\n\r\n"), without = text.find("\n\n");
  if (with_returns == std::string_view::npos && without == std::string_view::npos)
    return std::string_view::npos;
  return std::min(with_returns, without);
}

bool is_own_host(std::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos &&
      host.find_first_not_of("0123456789", colon + 1) == std::string_view::npos)
    host = host.substr(0, colon);  // any port: a tunnel may end at another one
  const std::string name = lower_case(host);
  return name == "127.0.0.1" || name == "localhost";
}

bool is_text(std::string_view head) {
  return std::ranges::none_of(head, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == 0x7F || (byte < 0x20 && c != '\r' && c != '\n' && c != '\t');
  });
}

Request refused(int status) {
  Request request;
  request.refusal = status;
  return request;
}

Request read_head(std::string_view head) {
  if (!is_text(head)) return refused(kBad);
  const std::string_view line = take_line(head);
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || last == first) return refused(kBad);
  const std::string_view method = line.substr(0, first), version = line.substr(last + 1);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  if ((version != "HTTP/1.1" && version != "HTTP/1.0") || !target.starts_with('/') ||
      target.find(' ') != std::string_view::npos)
    return refused(kBad);
  Request request;
  request.path = target.substr(0, target.find('?'));
  request.head_only = method == "HEAD";
  bool has_host = version == "HTTP/1.0";
  while (!head.empty()) {
    const std::string_view field = take_line(head);
    const size_t colon = field.find(':');
    if (colon == std::string_view::npos || colon == 0) return refused(kBad);
    const std::string name = lower_case(field.substr(0, colon));
    const std::string_view value = trimmed(field.substr(colon + 1));
    if (name == "host") {
      if (!is_own_host(value)) return refused(kForbidden);
      has_host = true;
    }
    if (name == "if-none-match") request.known_tag = value;
  }
  if (!has_host) return refused(kBad);
  if (method != "GET" && method != "HEAD") request.refusal = kMethod;
  return request;
}

}  // namespace

std::optional<Request> read_request(std::string_view arrived) {
  const size_t end = end_of_head(arrived);
  if (std::min(end, arrived.size()) > kLongestHead) return refused(kTooLong);
  if (end == std::string_view::npos) return std::nullopt;
  return read_head(arrived.substr(0, end));
}

}  // namespace dstrain::report
