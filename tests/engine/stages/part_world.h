// PartWorld: some ranks of a world as a world of their own, for runs that all parts do at the same time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace dstrain {

class PartWorld final : public Communicator {
 public:
  // Collective over `world`, which outlives this object. `ranks` has this rank.
  PartWorld(Communicator& world, std::span<const int> ranks)
      : world_(world), part_(world.split(ranks)) {}

  int rank() const override { return part_->rank(); }
  int size() const override { return part_->size(); }
  // Collective over the world: every part must allocate as often as the others.
  Memory allocate(int64_t bytes, const std::string& what) override {
    return world_.allocate(bytes, what);
  }
  std::unique_ptr<Communicator> split(std::span<const int> ranks) override {
    return part_->split(ranks);
  }
  Work all_reduce(Tensor inout) override { return part_->all_reduce(inout); }
  Work reduce_scatter(Tensor in, Tensor out) override { return part_->reduce_scatter(in, out); }
  Work all_gather(Tensor in, Tensor out) override { return part_->all_gather(in, out); }
  Work all_to_all(Tensor in, Tensor out) override { return part_->all_to_all(in, out); }
  Work exchange_rows(Tensor in, Tensor out, RowCounts counts) override {
    return part_->exchange_rows(in, out, counts);
  }
  Work broadcast(Tensor inout, int root) override { return part_->broadcast(inout, root); }
  Work send(Tensor in) override { return part_->send(in); }
  Work recv(Tensor out) override { return part_->recv(out); }
  void barrier() override { part_->barrier(); }
  void wait_for(int64_t sequence) override { part_->wait_for(sequence); }
  bool poll_for(int64_t sequence) override { return part_->poll_for(sequence); }
  void gather_values(std::span<const double> mine, std::span<double> all) override {
    part_->gather_values(mine, all);
  }
  void abort(const std::string& reason) override { part_->abort(reason); }
  int64_t wire_bytes() const override { return part_->wire_bytes(); }
  void set_deadline(double seconds) override { part_->set_deadline(seconds); }
  void set_threads(int threads) override { part_->set_threads(threads); }
  void finish() override {}

 private:
  Communicator& world_;
  std::unique_ptr<Communicator> part_;
};

}  // namespace dstrain
