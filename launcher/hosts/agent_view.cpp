#include "launcher/hosts/agent_view.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "launcher/supervise/culprit.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr size_t kKeptErrors = 4096;

}  // namespace

AgentView::AgentView(std::string name, const std::vector<std::string>& command,
                     std::vector<int> ranks, int64_t silence_ns)
    : name_(std::move(name)),
      own_ranks_(std::move(ranks)),
      child_(command, {}, Child::Pipes::three),
      channel_(child_.output(), child_.input()),
      reports_(own_ranks_.size()),
      addresses_(own_addresses()),
      most_silence_ns_(silence_ns),
      silence_(monotonic_ns()),
      last_word_ns_(monotonic_ns()) {
  for (size_t i = 0; i < own_ranks_.size(); ++i) reports_[i].rank = own_ranks_[i];
}

void AgentView::ask(const json& question, const std::string& answer) {
  awaited_ = answer;
  answer_.reset();
  channel_.send(question);
}

std::optional<json> AgentView::take_answer() {
  return std::exchange(answer_, std::nullopt);
}

std::string AgentView::complaint() const {
  std::string text = errors_;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

// Whose fault it is that nothing comes from the host: addresses of this machine may have gone.
Loss AgentView::host_or_network() const {
  const std::vector<InterfaceAddress> now = own_addresses();
  const bool all_there = std::ranges::all_of(addresses_, [&now](const InterfaceAddress& address) {
    return std::ranges::find(now, address) != now.end();
  });
  return all_there ? Loss::host : Loss::own_network;
}

void AgentView::lose(const std::string& why, Loss loss) {
  if (ended_) return;
  ended_ = true;
  if (ending_) return;
  lost_ = why;
  loss_ = loss;
  lost_since_ = std::min(last_word_ns_, monotonic_ns());
}

void AgentView::look(bool) {
  const int64_t now = monotonic_ns();
  silence_.look(now);
  if (ended_) return;
  read();
  if (ended_) return;
  if (answered_ && silence_.ns() > most_silence_ns_)
    return lose(fmt::format("no word from it for {} s", most_silence_ns_ / 1'000'000'000),
                host_or_network());
  if (now - last_sent_ns_ >= kHeartbeat) {
    last_sent_ns_ = now;
    channel_.send({{"do", "alive"}});
  }
  channel_.flush();
}

void AgentView::read() {
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = ::read(child_.errors(), buffer.data(), buffer.size())) > 0;) {
    errors_.append(buffer.data(), static_cast<size_t>(n));
    if (errors_.size() > kKeptErrors) errors_.erase(0, errors_.size() - kKeptErrors);
  }
  const bool open = channel_.receive();
  while (const auto message = channel_.take()) {
    last_word_ns_ = monotonic_ns();
    silence_.heard();
    answered_ = true;
    try {
      take_message(*message);
    } catch (const json::exception& e) {
      return lose(fmt::format("its agent spoke nonsense: {}", e.what()));
    }
  }
  if (!channel_.fault().empty())
    return lose(
        fmt::format("its agent cannot be understood: {} (start-up files of shells there "
                    "must print nothing)",
                    channel_.fault()));
  if (open || !child_.ended()) return;
  const int status = *child_.ended();
  // As the agent, or its own exit status through ssh, tells; ssh itself fails with 255.
  if (WIFEXITED(status) && WEXITSTATUS(status) > 128 && WEXITSTATUS(status) < 128 + NSIG)
    return lose(ending_text(W_EXITCODE(0, WEXITSTATUS(status) - 128)), Loss::agent);
  const std::string said = complaint();
  lose(fmt::format("the connection to it ended{}{}",
                   WIFEXITED(status) ? fmt::format(" (exit status {})", WEXITSTATUS(status)) : "",
                   said.empty() ? "" : ": " + said),
       host_or_network());
}

void AgentView::take_message(const json& m) {
  const std::string what = m.at("say").get<std::string>();
  if (what == "ranks") {
    const int64_t now = monotonic_ns();
    std::vector<RankReport> reports;
    for (const json& rank : m.at("ranks")) reports.push_back(rank_report_of(rank, now));
    const bool same =
        std::equal(reports.begin(), reports.end(), own_ranks_.begin(), own_ranks_.end(),
                   [](const RankReport& r, int rank) { return r.rank == rank; });
    if (!same) return lose("its agent reports other ranks than its own");
    reports_ = std::move(reports);
    starter_ = starter_report_of(m.at("starter"), now);
    stopped_ = m.at("stopped").get<int>();
    kills_ = m.at("kills").get<int64_t>();
  } else if (what == "output") {
    output_.push_back({m.at("rank").get<int>(),
                       m.at("error").get<bool>() ? StandardStream::error : StandardStream::output,
                       from_json_text(m.at("text").get<std::string>())});
  } else if (what == "fault") {
    lose(from_json_text(m.at("text").get<std::string>()));
  } else if (what == "bye") {
    ended_ = true;
  } else if (what == awaited_) {
    answer_ = m;
  }
}

void AgentView::request_stop(int signal) {
  channel_.send({{"do", "stop"}, {"signal", signal}});
}

void AgentView::kill_all() {
  channel_.send({{"do", "kill"}});
}

void AgentView::take_output(const OutputTaker& take) {
  for (const auto& [rank, stream, text] : std::exchange(output_, {})) take(rank, stream, text);
}

void AgentView::end() {
  if (std::exchange(ending_, true) || ended_) return;
  channel_.send({{"do", "end"}});
}

std::vector<json> ask_all(std::span<const std::unique_ptr<AgentView>> hosts,
                          const std::string& answer, double seconds,
                          const std::function<json(size_t host)>& question,
                          const std::function<void()>& meanwhile) {
  std::vector<json> answers(hosts.size());
  std::set<size_t> waiting;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const json words = hosts[i]->lost().empty() ? question(i) : json();
    if (words.is_null()) continue;
    hosts[i]->ask(words, answer);
    waiting.insert(i);
  }
  const int64_t end = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
  while (!waiting.empty() && monotonic_ns() < end) {
    ::poll(nullptr, 0, 5);
    for (const auto& host : hosts) host->look(false);
    meanwhile();
    std::erase_if(waiting, [&](size_t i) {
      if (auto said = hosts[i]->take_answer()) answers[i] = std::move(*said);
      return !answers[i].is_null() || !hosts[i]->lost().empty();
    });
  }
  return answers;
}

}  // namespace dstrain
