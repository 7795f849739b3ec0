// OutputBacklog: what ranks of a host wrote while the launching process takes nothing. Ranks never wait for a
// reader: where it grows too large progress lines are left out, and in the end others, and it says how many.
// Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dstrain {

// Of one rank.
class OutputBacklog {
 public:
  // `most`: bytes that are kept without leaving anything out; of other lines than progress, four times as
  // many.
  explicit OutputBacklog(size_t most) : most_(most) {}

  // Bytes that the rank wrote, after those that were passed on, or that it holds.
  void add(std::string_view bytes);
  // Notes bytes that are passed on without it: where lines begin.
  void passed(std::string_view bytes);
  bool empty() const { return text_.empty() && dropped_ == 0; }
  // All of it, and that something was left out.
  std::string take();

 private:
  void shrink();

  size_t most_;
  std::string text_;
  bool at_line_begin_ = true;  // the first byte of text_ begins a line
  size_t dropped_ = 0;         // lines
};

}  // namespace dstrain
