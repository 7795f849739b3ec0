// SharedComm: collectives between the processes of one machine, in place in each other's memory.
// The rank that owns an element of a sum reads it from every rank's source and writes the result to every
// rank's destination, so each byte moves once. Tensors outside allocate()'s memory take the same way in
// chunks through the bounce buffers. Stands on SharedGroup.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/ordered_comm.h"
#include "runtime/comm/shared/arrivals.h"
#include "runtime/comm/shared/local_tensors.h"
#include "runtime/comm/shared/shared_group.h"
#include "runtime/comm/shared/shared_regions.h"

namespace dstrain {

class SharedComm final : public OrderedComm {
 public:
  // `group` has the segments of all `ranks`. A communicator of a part of the world gets `part`, and reads tensors in
  // `world_memory`, the memory that the ranks of the world have allocated.
  SharedComm(std::unique_ptr<Rendezvous> ranks, Peers peers, std::unique_ptr<SharedGroup> group,
             const CommOptions& options, PartOf part = {}, RegionView world_memory = {});
  ~SharedComm() override;
  Memory allocate(int64_t bytes, const std::string& what) override;

 protected:
  std::unique_ptr<Communicator> open_part(std::unique_ptr<PartRendezvous> ranks) override;
  Stages run(Operation op) override;
  bool peer_alive(int peer) override { return peers_.alive(peer); }
  std::string peer_name(int peer) override { return peers_.name(peer); }
  double extra_seconds(int) override { return 0; }
  void raise_abort(const std::string& reason) override { group_->raise_abort(rank(), reason); }
  std::optional<Abort> raised_abort() override { return group_->raised_abort(); }
  void leave() override { ranks_->leave(); }

 private:
  TensorPlace place_of(const Operation& op) const;
  void post(const Operation& op);
  void read_postings(const OpKey& key);
  void stage_in(const Operation& op);
  // Does one piece of this chunk's work, from byte `position` of it on, and moves `position`; returns
  // whether the chunk is done.
  bool work(const Operation& op, int64_t& position);
  // Copies the next piece of the rows that rank `from` sends to this one; returns whether it was the last.
  bool take_rows(const Operation& op, int from, int64_t& position) const;
  void work_range(const Operation& op, int64_t from, int64_t to);

  std::unique_ptr<Rendezvous> ranks_;
  Peers peers_;
  std::unique_ptr<SharedGroup> group_;
  Arrivals arrivals_;
  SharedRegions regions_;  // of the world
  RegionView memory_;
  LocalTensors sources_;     // of the operation under way, by rank
  std::vector<OpKey> keys_;  // by rank
};

}  // namespace dstrain
