// LoneComm: the communicator of a part (PartOf) that has one rank. Its operations are copies and wait for nobody;
// aborts are the world's.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/ordered_comm.h"

namespace dstrain {

class LoneComm final : public OrderedComm {
 public:
  explicit LoneComm(PartOf part);
  ~LoneComm() override;
  // Memory that only this rank sees.
  Memory allocate(int64_t bytes, const std::string& what) override;

 protected:
  std::unique_ptr<Communicator> open_part(std::unique_ptr<PartRendezvous> ranks) override;
  Stages run(Operation op) override;
  bool peer_alive(int) override { return true; }
  std::string peer_name(int) override { return "this rank"; }
  double extra_seconds(int) override { return 0; }
  void raise_abort(const std::string&) override {}
  std::optional<Abort> raised_abort() override { return std::nullopt; }
  void leave() override {}
};

}  // namespace dstrain
