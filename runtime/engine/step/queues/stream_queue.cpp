#include "runtime/engine/step/queues/stream_queue.h"

#include <vector>

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"
#include "runtime/engine/step/queues/start_collective.h"

namespace dstrain {
namespace {

// Collectives run on streams beside the compute stream, one for each channel, because the order of two channels
// may differ from rank to rank. The host waits for none.
class StreamQueue : public CommQueue {
 public:
  StreamQueue(std::span<Communicator* const> channels, const Backend& backend,
              std::span<const size_t> most)
      : backend_(backend), channels_(channels.size()) {
    for (size_t c = 0; c < channels.size(); ++c) {
      Channel& channel = channels_[c];
      channel.comm = channels[c]->on_stream();
      channel.stream = backend.device->make_stream(StreamPriority::high);
      for (size_t i = 0; i < most[c]; ++i) {
        channel.ready.push_back(backend.device->make_event());
        channel.done.push_back(backend.device->make_event());
      }
      channel.posted_at.reserve(most[c]);
    }
  }

  void post(int channel, OpKind op, Tensor in, Tensor out, const RowCounts& rows) override {
    Channel& c = channels_[static_cast<size_t>(channel)];
    const size_t i = c.posted_at.size();
    c.posted_at.push_back(monotonic_ns());
    c.ready[i]->record(*backend_.compute);
    c.stream->wait(*c.ready[i]);
    start_collective(*c.comm, op, in, out, rows, *c.stream);
    c.done[i]->record(*c.stream);
  }
  void wait(int channel, int32_t count) override {
    Channel& c = channels_[static_cast<size_t>(channel)];
    const auto target = static_cast<size_t>(count);
    if (target <= c.waited) return;
    backend_.compute->wait(*c.done[target - 1]);
    c.waited = target;
  }
  void poll() override {}
  // The host knows only when they were posted.
  TimeSpan times(int channel, size_t i) const override {
    const int64_t posted_at = channels_[static_cast<size_t>(channel)].posted_at[i];
    return {posted_at, posted_at};
  }
  void capturing() override {
    for (Channel& c : channels_) c.before = c.posted_at.size();
  }
  // Events that were recorded in a capture are not waited for: its graph ends after the collectives.
  void captured() override {
    for (Channel& c : channels_) {
      check(c.waited == c.posted_at.size(), "a capture ends with {} collectives of {} waited for",
            c.waited, c.posted_at.size());
      c.captures.push_back({c.posted_at.size() - c.before, c.comm->take_captured_bytes()});
      c.posted_at.resize(c.before);
      c.waited = c.before;
    }
  }
  void replayed(size_t capture) override {
    const int64_t now = monotonic_ns();
    for (Channel& c : channels_) {
      const Captured& graph = c.captures[capture];
      c.comm->replayed(graph.bytes, *backend_.compute);
      c.posted_at.insert(c.posted_at.end(), graph.collectives, now);
      c.waited = c.posted_at.size();
    }
  }
  void restart() override {
    for (Channel& c : channels_) {
      c.comm->check_failure();
      c.posted_at.clear();
      c.waited = 0;
    }
  }

 private:
  struct Captured {
    size_t collectives = 0;
    int64_t bytes = 0;
  };
  struct Channel {
    StreamCollectives* comm = nullptr;
    std::unique_ptr<Stream> stream{};
    std::vector<std::unique_ptr<Event>> ready{}, done{};  // of the i-th collective of a step
    std::vector<int64_t> posted_at{};
    size_t waited = 0;
    size_t before = 0;  // collectives of the step that were posted before the capture
    std::vector<Captured> captures{};
  };

  const Backend& backend_;
  std::vector<Channel> channels_;
};

}  // namespace

std::unique_ptr<CommQueue> make_stream_queue(std::span<Communicator* const> channels,
                                             const Backend& backend, std::span<const size_t> most) {
  return std::make_unique<StreamQueue>(channels, backend, most);
}

}  // namespace dstrain
