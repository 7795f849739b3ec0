#include "launcher/output_lines.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "runtime/core/log.h"

namespace dstrain {
namespace {

constexpr size_t kLongestLine = size_t{1} << 16;  // longer ones are broken
constexpr size_t kMostWaiting = 512;
constexpr size_t kMostHostsNamed = 4;  // more are counted

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

std::string rank_ranges(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

OutputLines::OutputLines(Options options, Write write)
    : options_(std::move(options)), write_(std::move(write)) {}

void OutputLines::take(int source, std::string_view bytes, int64_t now_ns) {
  Source& from = sources_[source];
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = bytes.find('\n', begin);
    if (from.unfinished.empty()) from.since_ns = now_ns;
    from.unfinished += bytes.substr(begin, end == std::string_view::npos ? end : end - begin);
    if (end == std::string_view::npos && from.unfinished.size() < kLongestLine) break;
    take_line(source, std::exchange(from.unfinished, {}), now_ns);
    begin = end == std::string_view::npos ? bytes.size() : end + 1;
  }
}

void OutputLines::take_line(int source, std::string_view line, int64_t now_ns) {
  const std::optional<MarkedLine> own = marked(line);
  if (source > 0) {
    if (own && own->rank == source) return fold(source, own->mark, own->text, now_ns);
    return fold(source, mark_of(source), line, now_ns);
  }
  if (source == kManyRanks && own && own->rank > 0)
    return fold(own->rank, own->mark, own->text, now_ns);
  if (open_ != source) close_line();
  open_ = kNone;
  write_(std::string(line) + '\n');
}

std::string OutputLines::mark_of(int rank) const {
  const auto index = static_cast<size_t>(rank);
  return log::rank_mark(rank, index < options_.hosts.size() ? options_.hosts[index] : "");
}

std::string OutputLines::mark_of(const std::vector<int>& ranks) const {
  std::vector<std::string_view> hosts;  // ranks ascend, and so each host's follow each other
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
  return fmt::format("[ranks {}{}] ", rank_ranges(ranks), where);
}

void OutputLines::fold(int rank, std::string_view mark, std::string_view text, int64_t now_ns) {
  // A line joins one that waits, if none that its rank wrote earlier waits behind that.
  auto candidate = waiting_.end();
  for (auto w = waiting_.rbegin(); w != waiting_.rend(); ++w) {
    if (std::binary_search(w->ranks.begin(), w->ranks.end(), rank)) break;
    if (w->text == text) candidate = std::prev(w.base());
  }
  if (candidate == waiting_.end()) {
    if (waiting_.size() >= kMostWaiting) write_front();
    waiting_.push_back({std::string(text), std::string(mark), {rank}, now_ns});
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
    if (source > 0 || from.unfinished.empty() || now_ns - from.since_ns < options_.window_ns)
      continue;
    if (open_ != source) close_line();
    write_(std::exchange(from.unfinished, {}));
    open_ = source;
  }
}

void OutputLines::finish() {
  for (auto& [source, from] : sources_)
    if (!from.unfinished.empty()) take_line(source, std::exchange(from.unfinished, {}), 0);
  while (!waiting_.empty()) write_front();
  close_line();
}

void OutputLines::write_front() {
  const Waiting line = std::move(waiting_.front());
  waiting_.pop_front();
  write_line(line.ranks.size() == 1 ? line.mark : mark_of(line.ranks), line.text);
}

void OutputLines::write_line(std::string_view prefix, std::string_view text) {
  close_line();
  write_(fmt::format("{}{}{}\n", options_.before_line, prefix, text));
}

void OutputLines::close_line() {
  if (std::exchange(open_, kNone) != kNone) write_("\n");
}

}  // namespace dstrain
