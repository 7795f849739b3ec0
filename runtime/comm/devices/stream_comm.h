// StreamComm: collectives between devices that are enqueued on streams and carried by a StreamTransport. The host
// communicator of the same ranks carries small values and aborts. A thread watches both: it stops the transport if it
// reports an error, if a collective reaches the deadline, or if a peer has stopped the group, so that no stream hangs for
// ever.
// With a RankSum the sums are in rank order (rank_order_sums.h), else the transport's own.
// What is captured from a stream has not run: it is counted and watched when the graph is replayed. A replay is
// watched as a whole.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/comm/devices/rank_order_sums.h"
#include "runtime/comm/devices/stream_transport.h"
#include "runtime/comm/devices/transport_end.h"
#include "runtime/comm/operation.h"

namespace dstrain {

class StreamComm final : public Communicator, public StreamCollectives {
 public:
  // Collective over `host`. Throws what `connect` throws. `host` and `device` must outlive this object. `sum`: the
  // kernel of sums in rank order; null: sums are the transport's own.
  StreamComm(Communicator& host, Device& device, ConnectTransport connect,
             std::shared_ptr<const RankSum> sum = nullptr);
  StreamComm(const StreamComm&) = delete;
  StreamComm& operator=(const StreamComm&) = delete;
  // The caller must have destroyed all graphs with captured collectives.
  ~StreamComm() override;

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  std::unique_ptr<Communicator> split(std::span<const int> ranks) override;
  // Memory of the world is announced to the transports of the world and of the parts that exist.
  Memory allocate(int64_t bytes, const std::string& what) override;
  StreamCollectives* on_stream() override { return this; }

  void all_reduce(Tensor inout, Stream& stream) override;
  void reduce_scatter(Tensor in, Tensor out, Stream& stream) override;
  void all_gather(Tensor in, Tensor out, Stream& stream) override;
  void all_to_all(Tensor in, Tensor out, Stream& stream) override;
  void exchange_rows(Tensor in, Tensor out, RowCounts counts, Stream& stream) override;
  void send(Tensor in, Stream& stream) override;
  void recv(Tensor out, Stream& stream) override;
  int64_t take_captured_bytes() override;
  void replayed(int64_t bytes, Stream& stream) override;
  void check_failure() override;
  void abandon() override { stop_all("this rank has failed"); }

  // Each is complete when it returns.
  Work all_reduce(Tensor inout) override;
  Work reduce_scatter(Tensor in, Tensor out) override;
  Work all_gather(Tensor in, Tensor out) override;
  Work all_to_all(Tensor in, Tensor out) override;
  Work exchange_rows(Tensor in, Tensor out, RowCounts counts) override;
  Work broadcast(Tensor inout, int root) override;
  Work send(Tensor in) override;
  Work recv(Tensor out) override;
  void barrier() override { host_.barrier(); }
  void wait_for(int64_t) override { check_failure(); }
  bool poll_for(int64_t) override;
  void gather_values(std::span<const double> mine, std::span<double> all) override;
  void abort(const std::string& reason) override;
  int64_t wire_bytes() const override { return wire_bytes_; }
  void set_deadline(double seconds) override;
  void set_threads(int threads) override { host_.set_threads(threads); }
  void report_to(RankSlot* slot) override { host_.report_to(slot); }
  void finish() override { host_.finish(); }

 private:
  using Clock = std::chrono::steady_clock;

  // A part of `parent`, with the host communicator of its ranks.
  StreamComm(std::unique_ptr<Communicator> host, StreamComm& parent);
  void connect_ranks();
  // Sends a message each way.
  void connect_messages();
  // Gives the transport an operation of `whole_bytes` by `call`, and counts and watches it.
  template <class Call>
  void start(Collective kind, int64_t whole_bytes, Stream& stream, Call&& call);
  void exchange_with_peer(const Tensor& to, const Tensor& from, int64_t bytes, Stream& stream);
  Work complete();
  // Adds bytes that were sent.
  void count(int64_t bytes);
  void watch_locked(Stream& stream);
  void watch();
  void end_watch();
  StreamComm& world();
  // Stops the world and all its parts.
  void stop_all(const std::string& reason);
  void stop(const std::string& reason);
  // Begins to end the transport's operations, so that streams go on and check_failure() throws the reason.
  void stop_locked(const std::string& reason);

  StreamComm* parent_ = nullptr;
  std::unique_ptr<Communicator> own_host_;  // of a part
  Communicator& host_;
  Device& device_;
  ConnectTransport connect_;
  std::shared_ptr<const RankSum> sum_;
  std::unique_ptr<Stream> stream_;  // of collectives that the host waits for
  std::shared_ptr<StreamTransport> transport_;
  std::optional<RankOrderSums> sums_;  // absent: sums are the transport's
  std::unique_ptr<Event> newest_;      // after the newest collective, or the newest replay
  Clock::time_point under_way_since_;
  std::vector<Tensor> to_, from_;  // the messages of an exchange, by rank
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;  // not empty: no operation may be given to the transport any more
  TransportEnd end_;     // of a transport that failed
  bool closing_ = false;
  int64_t captured_bytes_ = 0;
  std::atomic<double> deadline_seconds_{600};
  std::atomic<int64_t> wire_bytes_{0};
  std::mutex parts_mutex_;
  std::vector<StreamComm*> parts_;  // of the world: all that exist
  std::thread watcher_;
};

}  // namespace dstrain
