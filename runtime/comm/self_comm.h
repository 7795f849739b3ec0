// SelfComm: the communicator of one rank. Every collective is the identity or a copy and complete when it
// returns. Uses no MPI.
#pragma once

#include <mutex>

#include "runtime/comm/communicator.h"

namespace dstrain {

class SelfComm final : public Communicator {
 public:
  // A part of `parent`, which outlives it; null: the world.
  explicit SelfComm(SelfComm* parent = nullptr) : parent_(parent) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Communicator> split(std::span<const int> ranks) override;
  Memory allocate(int64_t bytes, const std::string& what) override;
  Work all_reduce(Tensor inout) override;
  Work reduce_scatter(Tensor in, Tensor out) override;
  Work all_gather(Tensor in, Tensor out) override;
  Work all_to_all(Tensor in, Tensor out) override;
  Work exchange_rows(Tensor in, Tensor out, RowCounts counts) override;
  Work broadcast(Tensor inout, int root) override;
  void barrier() override;
  Work send(Tensor in) override;
  Work recv(Tensor out) override;
  void gather_values(std::span<const double> mine, std::span<double> all) override;
  void abort(const std::string& reason) override;
  int64_t wire_bytes() const override { return 0; }
  void set_deadline(double) override {}
  void set_threads(int) override {}
  void finish() override {}

  void wait_for(int64_t) override { throw_if_aborted(); }
  bool poll_for(int64_t) override {
    throw_if_aborted();
    return true;
  }

 private:
  void throw_if_aborted() const;
  Work copy(const Tensor& in, const Tensor& out);

  SelfComm* parent_;
  mutable std::mutex mutex_;
  std::string abort_reason_;
  bool aborted_ = false;
};

}  // namespace dstrain
