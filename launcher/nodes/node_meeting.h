// NodeMeeting: node 0 of hosts that were started by hand (--no_ssh). It listens at --master_port until all other nodes
// have connected. From then on node 0 and each of them send at least something every second, the nodes tell which stop
// signals they have received, and node 0 tells them at the end how the run ended.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/connection/line_channel.h"
#include "launcher/connection/silence.h"
#include "launcher/nodes/node_address.h"
#include "launcher/placement/resources.h"
#include "launcher/process/stop_signals.h"

namespace dstrain {

class NodeMeeting {
 public:
  // Waits for all nodes, and publishes their addresses (node_address.h). `slots`: the ranks of this node. `secret`: that
  // nodes must know; empty: none. Throws UserError if the port cannot be used, or after ten minutes, naming the nodes
  // that have not connected.
  NodeMeeting(const LaunchOptions& options, int slots, const std::string& secret);
  NodeMeeting(const NodeMeeting&) = delete;
  NodeMeeting& operator=(const NodeMeeting&) = delete;
  // Tells the nodes that the run has ended, with the status of end(), or 2 if it was not called.
  ~NodeMeeting();

  // The nodes and their slots, by node rank.
  const Placement& placement() const { return placement_; }
  // Sets the seconds of silence after which the nodes take this one for lost, and tells them at once, so that it holds
  // before ranks train. Until then it is kLongestSilence.
  void set_silence(int64_t seconds);
  // Sets the exit status of the run, and returns it.
  int end(int status) { return status_ = status; }

 private:
  struct Node {
    std::unique_ptr<SocketChannel>
        connection;  // null for node 0, and if it has not come or has gone
    NodeAddress address;
    int slots = 0;
    Silence silence{0};
    bool open = true;
  };
  struct Stop {
    int signal = 0, count = 0;
  };

  void meet(const LaunchOptions& options, const std::string& secret);
  void admit(std::unique_ptr<SocketChannel>& connection, const NodeIntroduction& other);
  std::string reason_against(const NodeIntroduction& other) const;
  std::vector<int> missing() const;
  // Reads what nodes have sent, and sends `message` to them if a second has passed. Returns the last stop signal that
  // one of them has reported. The caller holds the lock.
  Stop serve(const nlohmann::json& message);
  void forget_gone_nodes();
  void drop_faulty_nodes();
  void watch();
  void tell_end(int status);

  int64_t nnodes_;
  std::mutex mutex_;         // guards nodes_, sent_ns_ and silence_s_
  std::vector<Node> nodes_;  // by node rank
  int64_t sent_ns_ = 0;
  int64_t silence_s_ = kLongestSilence / 1'000'000'000;
  Placement placement_;
  Descriptor published_;  // what relays read
  int status_ = 2;
  std::atomic<bool> over_{false};
  BeforeSignalEnds before_signal_ends_;
  std::thread watch_;  // serves the nodes while they run
};

}  // namespace dstrain
