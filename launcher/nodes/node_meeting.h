// NodeMeeting: node 0 of hosts that were started by hand (--no_ssh): waits at --master_port until all others have
// come, and tells them at the end how the run ended. Stands on sockets and node_link.h.
#pragma once

#include <memory>
#include <vector>

#include "launcher/cli/launch_options.h"
#include "launcher/nodes/node_link.h"
#include "launcher/placement/resources.h"
#include "launcher/supervise/watchers/peer_view.h"

namespace dstrain {

class NodeMeeting {
 public:
  // Waits for all nodes, and publishes their doors. `slots`: ranks of this node. Throws UserError naming the nodes
  // that have not come, or that do not fit.
  NodeMeeting(const LaunchOptions& options, int slots);
  NodeMeeting(const NodeMeeting&) = delete;
  NodeMeeting& operator=(const NodeMeeting&) = delete;
  // Tells the nodes that the run has ended, with end()'s status, else 2.
  ~NodeMeeting();

  // The hosts by node rank, with their slots.
  const Placement& placement() const { return placement_; }
  // Returns the status of the run that it is given.
  int end(int status) { return status_ = status; }

 private:
  struct Node {
    std::unique_ptr<WatchLine> line;
    NodeDoor door;
    int slots = 0;
  };

  void take(std::unique_ptr<WatchLine> line, const nlohmann::json& introduction);
  std::vector<int> missing() const;

  int64_t nnodes_;
  std::vector<Node> nodes_;  // by rank; of node 0 there is no line
  Placement placement_;
  int status_ = 2;
};

}  // namespace dstrain
