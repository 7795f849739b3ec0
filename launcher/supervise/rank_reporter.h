// RankReporter: sends reports about this host's ranks over a channel, after every important change and once a second.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "launcher/connection/line_channel.h"
#include "launcher/supervise/board_view.h"

namespace dstrain {

// Data that the caller of a RankReporter adds to a report.
struct ReportAddition {
  std::string state;       // a change of it is sent at once
  nlohmann::json members;  // further members of the message
};

class RankReporter {
 public:
  // `view` must outlive this object. `before_sending` is called after each look at the ranks and before its message:
  // it may throw what ended them, so that nobody hears of ranks that have ended before hearing of the cause.
  explicit RankReporter(BoardView& view, std::function<void()> before_sending = {})
      : view_(view), before_sending_(std::move(before_sending)) {}

  // Updates the view and sends a message "ranks" if it is time. If the other end does not receive (`listens`), only
  // changes are sent.
  void report(LineChannel& channel, bool listens = true, const ReportAddition& addition = {});

 private:
  std::string summary() const;

  BoardView& view_;
  std::function<void()> before_sending_;
  std::string sent_;
  int64_t sent_ns_ = 0;
};

}  // namespace dstrain
