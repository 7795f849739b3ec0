// SharedComm: collectives between the processes of one machine, in place in each other's memory.
// Stands on SharedGroup. A sum is made where its owner reads every rank's source and writes the result
// to every rank's destination, so each byte is moved once; tensors outside allocate()'s memory take
// the same way in chunks through the bounce buffers.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/ordered.h"
#include "runtime/comm/shared/shared_group.h"
#include "runtime/comm/shared/shared_regions.h"

namespace dstrain {

class SharedComm final : public OrderedCommunicator {
 public:
  // All ranks of the world are in `group`.
  SharedComm(std::unique_ptr<Rendezvous> ranks, Peers peers, std::unique_ptr<SharedGroup> group,
             const CommOptions& options);
  ~SharedComm() override;
  Memory allocate(int64_t bytes, const std::string& what) override;

 protected:
  Step advance(Operation& op) override;
  void sleep() override { group_->sleep(std::chrono::milliseconds(100)); }
  int waited_rank() override { return group_->lagging(); }
  bool peer_alive(int peer) override { return peers_.alive(peer); }
  std::string peer_name(int peer) override { return peers_.name(peer); }
  double grace(int) override { return 0; }
  void raise_abort(const std::string& reason) override { group_->raise_abort(rank(), reason); }
  bool abort_raised(Abort& abort) override;
  void leave() override;

 private:
  // Progress of the operation at the head of the queue: per chunk, announce (arrive), wait for all,
  // work, arrive, wait for all, collect.
  enum class Stage { announce, gather, work, settle };
  struct Active {
    Stage stage = Stage::announce;
    bool staged_here = false;
    int64_t chunk = 0;  // elements of a full chunk; all of them where no rank is staged
    int64_t begin = 0;  // this chunk: elements [begin, end) of the whole, or of each slice
    int64_t end = 0;
    int64_t position = 0;             // bytes of this chunk's work already done
    std::vector<std::byte*> sources;  // by rank: the tensor, unless staged
    std::vector<char> staged;         // by rank
    std::vector<OpKey> keys;          // by rank
  };

  TensorPlace place_of(const Operation& op) const;
  void announce(const Operation& op);
  void meet(const Operation& op);
  void set_window(const Operation& op, int64_t begin);
  std::byte* source(const Operation& op, int r, int64_t slice) const;
  void stage_in(const Operation& op);
  void stage_out(const Operation& op);
  // Does one piece of this chunk's work; true when the chunk is done.
  bool work(const Operation& op);
  void work_range(const Operation& op, int64_t from, int64_t to);

  std::unique_ptr<Rendezvous> ranks_;
  Peers peers_;
  std::unique_ptr<SharedGroup> group_;
  SharedRegions regions_;
  Active active_;
};

}  // namespace dstrain
