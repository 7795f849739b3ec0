// NodeMeeting: node 0 of hosts that were started by hand (--no_ssh). It listens at --master_port until all other nodes
// have connected, and tells them at the end how the run ended.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/connection/line_channel.h"
#include "launcher/nodes/node_address.h"
#include "launcher/placement/resources.h"

namespace dstrain {

class NodeMeeting {
 public:
  // Waits for all nodes, and publishes their addresses (node_address.h). `slots`: the ranks of this node. Throws
  // UserError if the port cannot be used, or after ten minutes, naming the nodes that have not connected.
  NodeMeeting(const LaunchOptions& options, int slots);
  NodeMeeting(const NodeMeeting&) = delete;
  NodeMeeting& operator=(const NodeMeeting&) = delete;
  // Tells the nodes that the run has ended, with the status of end(), or 2 if it was not called.
  ~NodeMeeting();

  // The nodes and their slots, by node rank.
  const Placement& placement() const { return placement_; }
  // Sets the exit status of the run, and returns it.
  int end(int status) { return status_ = status; }

 private:
  struct Node {
    std::unique_ptr<SocketChannel> connection;  // null for node 0
    NodeAddress address;
    int slots = 0;
  };

  void admit(std::unique_ptr<SocketChannel>& connection, const NodeIntroduction& other);
  std::string reason_against(const NodeIntroduction& other) const;
  std::vector<int> missing() const;

  int64_t nnodes_;
  std::vector<Node> nodes_;  // by node rank
  Placement placement_;
  int status_ = 2;
};

}  // namespace dstrain
