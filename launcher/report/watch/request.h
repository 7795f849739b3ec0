// Request: what a browser asks the page's server for. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace dstrain::report {

// The most bytes of a request's head. A browser sends one or two KiB.
inline constexpr size_t kLongestHead = 16384;

struct Request {
  int refusal = 0;         // the HTTP status with which it is answered at once; 0: none
  bool head_only = false;  // HEAD
  std::string path;        // without what follows '?'
  std::string known_tag;   // If-None-Match
};

// Reads the head of a request from what has arrived of it. Returns nothing while its end is missing and it may still
// become one. Refused are methods but GET and HEAD (405), what is no HTTP (400), what is too long (431), and a Host that is
// no name of this machine (403), so that a page from elsewhere whose name leads to this machine reads nothing.
std::optional<Request> read_request(std::string_view arrived);

}  // namespace dstrain::report
