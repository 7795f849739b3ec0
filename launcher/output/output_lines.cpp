#include "launcher/output/output_lines.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "launcher/placement/ranges_text.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

constexpr size_t kLongestLine = size_t{1} << 16;  // longer ones are broken
constexpr size_t kMostWaiting = 512;
constexpr size_t kMostHostsNamed = 4;  // more are counted

const std::string kClearLine = "\r\x1b[K";

// Returns whether a line of rank 0 only reports progress, which later lines make dispensable.
bool is_progress(std::string_view line) {
  return line.starts_with("step=") || line.starts_with("time (ms) | ");
}

struct MarkedLine {
  int rank;
  std::string_view mark;  // "[rank 3 node2] "
  std::string_view text;
};

std::optional<MarkedLine> marked(std::string_view line) {
  constexpr std::string_view kBegin = "[rank ";
  if (!line.starts_with(kBegin)) return std::nullopt;
  const size_t close = line.find("] ");
  if (close == std::string_view::npos) return std::nullopt;
  int rank = -1;
  const char* const end = line.data() + close;
  const auto [stop, status] = std::from_chars(line.data() + kBegin.size(), end, rank);
  if (status != std::errc() || rank < 0 || (stop != end && *stop != ' ')) return std::nullopt;
  return MarkedLine{rank, line.substr(0, close + 2), line.substr(close + 2)};
}

}  // namespace

OutputLines::OutputLines(Options options, Write write)
    : options_(std::move(options)), write_(std::move(write)) {}

void OutputLines::add(int rank, StandardStream stream, std::string_view bytes, int64_t now_ns) {
  const bool has_live_line = options_.live_line && rank == 0 && stream == StandardStream::error;
  Unfinished& from = sources_[{rank, stream}];
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = bytes.find_first_of(has_live_line ? "\n\r" : "\n", begin);
    if (from.text.empty()) from.since_ns = now_ns;
    from.text += bytes.substr(begin, end == std::string_view::npos ? end : end - begin);
    if (end == std::string_view::npos && from.text.size() < kLongestLine) break;
    const std::string line = std::exchange(from.text, {});
    if (end != std::string_view::npos && bytes[end] == '\r')
      draw_live_line(line);
    else
      add_line({rank, stream}, line, now_ns);
    begin = end == std::string_view::npos ? bytes.size() : end + 1;
  }
}

void OutputLines::add_line(Source source, std::string_view line, int64_t now_ns) {
  const int rank = source.first;
  if (rank > 0) {
    const std::optional<MarkedLine> own = marked(line);
    if (own && own->rank == rank) return fold(source, own->mark, own->text, now_ns);
    return fold(source, mark_of(rank), line, now_ns);
  }
  if (open_ == source) {  // the rest of a line whose beginning was written
    open_.reset();
    write_(source.second, TextKind::event, std::string(line) + '\n');
    return;
  }
  write_line(source.second, "", line);
}

std::string OutputLines::mark_of(int rank) const {
  const auto index = static_cast<size_t>(rank);
  return log::rank_mark(rank, index < options_.hosts.size() ? options_.hosts[index] : "");
}

std::string OutputLines::mark_of(const std::vector<int>& ranks) const {
  std::vector<std::string_view> hosts;  // the ranks of a host are consecutive
  for (const int rank : ranks) {
    const auto index = static_cast<size_t>(rank);
    if (index < options_.hosts.size() && (hosts.empty() || hosts.back() != options_.hosts[index]))
      hosts.push_back(options_.hosts[index]);
  }
  std::string where;
  if (hosts.size() > kMostHostsNamed)
    where = fmt::format(" on {} hosts", hosts.size());
  else
    for (const std::string_view host : hosts) where += fmt::format(" {}", host);
  return fmt::format("[ranks {}{}] ", ranges_text(ranks), where);
}

void OutputLines::fold(Source source, std::string_view mark, std::string_view text,
                       int64_t now_ns) {
  const auto [rank, stream] = source;
  // A line joins an equal one that waits, unless an earlier line of its rank waits after that.
  auto candidate = waiting_.end();
  for (auto w = waiting_.rbegin(); w != waiting_.rend(); ++w) {
    if (std::binary_search(w->ranks.begin(), w->ranks.end(), rank)) break;
    if (w->text == text && w->stream == stream) candidate = std::prev(w.base());
  }
  if (candidate == waiting_.end()) {
    if (waiting_.size() >= kMostWaiting) write_front();
    waiting_.push_back({stream, std::string(text), std::string(mark), {rank}, now_ns});
    candidate = std::prev(waiting_.end());
  } else {
    auto& ranks = candidate->ranks;
    ranks.insert(std::upper_bound(ranks.begin(), ranks.end(), rank), rank);
  }
  while (!waiting_.empty() && static_cast<int>(waiting_.front().ranks.size()) >= options_.ranks - 1)
    write_front();
}

void OutputLines::flush_due(int64_t now_ns) {
  while (!waiting_.empty() && now_ns - waiting_.front().since_ns >= options_.window_ns)
    write_front();
  for (auto& [source, from] : sources_) {
    if (source.first > 0 || from.text.empty() || now_ns - from.since_ns < options_.window_ns)
      continue;
    if (open_ != source) close_line();
    clear_live_line();
    write_(source.second, TextKind::event, std::exchange(from.text, {}));
    open_ = source;
  }
}

void OutputLines::finish() {
  for (auto& [source, from] : sources_)
    if (!from.text.empty()) add_line(source, std::exchange(from.text, {}), 0);
  while (!waiting_.empty()) write_front();
  close_line();
  clear_live_line();
}

void OutputLines::write_front() {
  const Waiting line = std::move(waiting_.front());
  waiting_.pop_front();
  write_line(line.stream, line.ranks.size() == 1 ? line.mark : mark_of(line.ranks), line.text);
}

void OutputLines::write_line(StandardStream stream, std::string_view mark, std::string_view text) {
  close_line();
  clear_live_line();
  const TextKind kind = mark.empty() && is_progress(text) ? TextKind::progress : TextKind::event;
  const std::string time = options_.time_stamp ? options_.time_stamp() : "";
  write_(stream, kind, fmt::format("{}{}{}\n", time, mark, text));
  if (!live_line_.empty()) draw_live_line(std::exchange(live_line_, {}));
}

void OutputLines::close_line() {
  if (!open_) return;
  write_(open_->second, TextKind::event, "\n");
  open_.reset();
}

void OutputLines::draw_live_line(std::string_view text) {
  clear_live_line();
  live_line_ = text;
  if (text.empty() || open_) return;
  // The terminal may have become narrower than rank 0 knows, and what goes on in a second line is not erased.
  const size_t most = options_.columns ? static_cast<size_t>(std::max(options_.columns() - 1, 0))
                                       : live_line_.size();
  write_(StandardStream::error, TextKind::progress, kClearLine + live_line_.substr(0, most));
  live_line_is_drawn_ = true;
}

void OutputLines::clear_live_line() {
  if (std::exchange(live_line_is_drawn_, false))
    write_(StandardStream::error, TextKind::progress, kClearLine);
}

}  // namespace dstrain
