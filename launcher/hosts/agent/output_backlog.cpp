#include "launcher/hosts/agent/output_backlog.h"

#include <algorithm>
#include <utility>

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::string_view kLineEnds = "\n\r";
constexpr size_t kRoomForEvents = 4;

// Returns whether the line only reports progress. The next such line replaces it, and metrics.jsonl has its numbers.
bool is_progress(std::string_view line) {
  return line.ends_with('\r') || line.starts_with("step=");
}

}  // namespace

void OutputBacklog::passed(std::string_view bytes) {
  if (!bytes.empty()) at_line_begin_ = kLineEnds.find(bytes.back()) != std::string_view::npos;
}

void OutputBacklog::add(std::string_view bytes) {
  text_ += bytes;
  if (text_.size() > most_) shrink();
}

void OutputBacklog::shrink() {
  const auto keep_lines = [this](const auto& wanted) {
    std::string kept;
    std::string_view rest = text_;
    for (bool first = true; !rest.empty(); first = false) {
      const size_t end = rest.find_first_of(kLineEnds);
      const std::string_view line = rest.substr(0, end == std::string_view::npos ? end : end + 1);
      // Parts of lines stay: the other part was sent, or is still to come.
      const bool whole = end != std::string_view::npos && (!first || at_line_begin_);
      if (!whole || wanted(line))
        kept += line;
      else
        ++dropped_;
      rest.remove_prefix(line.size());
    }
    text_ = std::move(kept);
  };
  keep_lines([](std::string_view line) { return !is_progress(line); });
  if (text_.size() <= kRoomForEvents * most_) return;
  size_t excess = text_.size() - kRoomForEvents * most_ / 2;
  keep_lines([&excess](std::string_view line) {
    const bool old = excess > 0;
    excess -= std::min(excess, line.size());
    return !old;
  });
  if (text_.size() > kRoomForEvents * most_)
    text_.erase(0, text_.size() - most_);  // a single line without end
}

std::string OutputBacklog::take() {
  std::string text = std::exchange(text_, {});
  passed(text);
  if (dropped_ > 0 && at_line_begin_)
    text += fmt::format("({} left out: nobody read them)\n",
                        counted(static_cast<int64_t>(std::exchange(dropped_, 0)), "line"));
  return text;
}

}  // namespace dstrain
