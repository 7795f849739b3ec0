// OutputBacklog: keeps what a rank has written to one stream while the launching process does not receive it. Ranks
// never wait for the launching process: a backlog that grows too large drops progress lines first, then others, and
// reports how many. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dstrain {

class OutputBacklog {
 public:
  // `most`: bytes beyond which progress lines are dropped. Other lines are dropped beyond four times as many.
  explicit OutputBacklog(size_t most) : most_(most) {}

  // Adds bytes that the rank wrote.
  void add(std::string_view bytes);
  // Notes bytes that were sent without passing through the backlog, to know where lines begin.
  void passed(std::string_view bytes);
  bool empty() const { return text_.empty() && dropped_ == 0; }
  // Returns and removes everything, with a line about what was dropped.
  std::string take();

 private:
  void shrink();

  size_t most_;
  std::string text_;
  bool at_line_begin_ = true;  // text_ begins with a whole line
  size_t dropped_ = 0;         // lines
};

}  // namespace dstrain
