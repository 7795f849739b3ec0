#include "launcher/hosts/agent_view.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <utility>

#include "launcher/process/read_pipe.h"
#include "launcher/process/stop_signals.h"
#include "launcher/supervise/report_messages.h"
#include "launcher/supervise/root_cause.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr size_t kKeptErrors = 4096;  // bytes

}  // namespace

AgentView::AgentView(std::string name, const std::vector<std::string>& command,
                     const std::vector<int>& ranks, int64_t silence_ns)
    : RemoteView(std::move(name), ranks, "agent", silence_ns),
      command_(command),
      child_(command, {}, Child::Pipes::three, Child::StopSignal::ignored),
      channel_(child_.output(), child_.input()),
      addresses_(own_addresses()) {}

void AgentView::ask(const json& question, const std::string& answer) {
  awaited_answer_ = answer;
  answer_.reset();
  if (question.at("do") == "hello") hello_ = question;
  channel_.send(question);
}

std::optional<json> AgentView::next_answer() {
  return std::exchange(answer_, std::nullopt);
}

std::string AgentView::error_line() const {
  std::string text = errors_;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

// Returns what is lost if nothing arrives from the host: this machine's network, if one of its addresses has gone.
Loss AgentView::loss_in_silence() const {
  const std::vector<InterfaceAddress> now = own_addresses();
  const bool all_there = std::ranges::all_of(addresses_, [&now](const InterfaceAddress& address) {
    return std::ranges::find(now, address) != now.end();
  });
  return all_there ? Loss::host : Loss::own_network;
}

void AgentView::mark_lost(const std::string& why, Loss loss) {
  if (ending_)
    set_over();
  else
    RemoteView::mark_lost(why, loss);
}

void AgentView::update(bool) {
  if (cleaner_) cleaner_->update(false);
  if (guard_clears_ && child_.ended()) guard_clears_ = false;
  if (over()) return;
  read_errors();
  exchange(channel_);
}

void AgentView::read_errors() {
  read_available(child_.errors(), [this](std::string_view bytes) {
    errors_ += bytes;
    if (errors_.size() > kKeptErrors) errors_.erase(0, errors_.size() - kKeptErrors);
  });
}

bool AgentView::connection_ended() {
  if (!child_.ended()) return false;
  read_errors();  // it may have written after the last look
  const int status = *child_.ended();
  // The exit status of the agent, which ssh passes on. If ssh itself fails it is 255.
  if (WIFEXITED(status) && WEXITSTATUS(status) > 128 && WEXITSTATUS(status) < 128 + NSIG) {
    mark_lost(ending_text(W_EXITCODE(0, WEXITSTATUS(status) - 128)), Loss::agent);
    return true;
  }
  const std::string said = error_line();
  cut_off_ = true;
  mark_lost(
      fmt::format("the connection to it ended{}{}",
                  WIFEXITED(status) ? fmt::format(" (exit status {})", WEXITSTATUS(status)) : "",
                  said.empty() ? "" : ": " + said),
      loss_in_silence());
  return true;
}

void AgentView::handle(const std::string& what, const json& m) {
  if (what == "ranks") {
    starter_ = starter_report_of(m.at("starter"), monotonic_ns());
    lack_ = from_json_text(m.value("lack", ""));
  } else if (what == "output") {
    output_.push_back({m.at("rank").get<int>(),
                       m.at("error").get<bool>() ? StandardStream::error : StandardStream::output,
                       from_json_text(m.at("text").get<std::string>())});
  } else if (what == "stop") {
    take_stop_signal(m.at("signal").get<int>(), m.at("count").get<int>());
  } else if (what == "trace") {
    take_trace_signal();
  } else if (what == "fault") {
    mark_lost(from_json_text(m.at("text").get<std::string>()), Loss::host);
  } else if (what == "killed") {
    guard_clears_ = true;
    mark_lost(ending_text(W_EXITCODE(0, m.at("signal").get<int>())), Loss::agent);
  } else if (what == "bye") {
    set_over();
  } else if (what == awaited_answer_) {
    answer_ = m;
  }
}

void AgentView::request_stop(int signal) {
  channel_.send({{"do", "stop"}, {"signal", signal}});
}

void AgentView::request_trace() {
  channel_.send({{"do", "trace"}});
}

void AgentView::kill_all() {
  channel_.send({{"do", "kill"}});
}

void AgentView::forward_output(const OutputSink& sink) {
  for (const auto& [rank, stream, text] : std::exchange(output_, {})) sink(rank, stream, text);
}

void AgentView::end() {
  if (std::exchange(ending_, true)) return;
  if (!over()) return channel_.send({{"do", "end"}});
  if (!cut_off_ || loss() == Loss::own_network || hello_.is_null()) return;
  cleaner_ = std::make_unique<AgentView>(name(), command_, std::vector<int>(), most_silence_ns());
  cleaner_->channel_.send(hello_);
  cleaner_->end();
}

std::vector<json> ask_all(std::span<const std::unique_ptr<AgentView>> hosts,
                          const std::string& answer, double seconds,
                          const std::function<json(size_t host)>& question,
                          const std::function<void()>& meanwhile) {
  std::vector<json> answers(hosts.size());
  std::set<size_t> waiting;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const json message = hosts[i]->lost().empty() ? question(i) : json();
    if (message.is_null()) continue;
    hosts[i]->ask(message, answer);
    waiting.insert(i);
  }
  const int64_t end = monotonic_ns() + static_cast<int64_t>(seconds * 1e9);
  while (!waiting.empty() && monotonic_ns() < end) {
    ::poll(nullptr, 0, 5);
    for (const auto& host : hosts) host->update(false);
    meanwhile();
    std::erase_if(waiting, [&](size_t i) {
      if (auto said = hosts[i]->next_answer()) answers[i] = std::move(*said);
      return !answers[i].is_null() || !hosts[i]->lost().empty();
    });
  }
  return answers;
}

}  // namespace dstrain
