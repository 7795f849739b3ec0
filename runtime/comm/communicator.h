// Communicator: the collectives a plan uses, over the ranks of one group. Sums are made in rank order
// in fp32 and rounded once to the tensor's dtype, for all-reduce and reduce-scatter alike, so a sum
// never depends on bucket size, stage or transport. On return from Work::wait() the operation is
// complete on this rank and no peer still reads this rank's source. Every wait has a deadline and
// throws RunError naming the rank that was waited for; after abort() every wait throws at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/core/memory.h"
#include "runtime/core/tensor.h"

namespace dstrain {

// An operation under way. poll() makes progress without blocking (one core per rank has no helper
// thread: the compute thread polls at instruction boundaries).
class Work {
 public:
  virtual ~Work() = default;
  virtual bool poll() = 0;
  virtual void wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Collective: memory that the peers may read directly. Tensors inside it travel without a copy;
  // others are staged. Lives as long as the returned Memory and this communicator.
  virtual Memory allocate(int64_t bytes, const std::string& what) = 0;

  // Each starts an operation; operations of one communicator complete in the order they were started,
  // which must be the same on every rank. `out` of a scatter and `in` of a gather is this rank's slice:
  // elements [rank*n, (rank+1)*n) of the whole of n*size elements. Dtypes f32, bf16, f16 (sums also f64, i32... see .cpp).
  virtual std::unique_ptr<Work> all_reduce(Tensor inout) = 0;
  virtual std::unique_ptr<Work> reduce_scatter(Tensor in, Tensor out) = 0;
  virtual std::unique_ptr<Work> all_gather(Tensor in, Tensor out) = 0;
  virtual std::unique_ptr<Work> broadcast(Tensor inout, int root) = 0;
  virtual void barrier() = 0;

  // Small values (at most 1 KiB), gathered from every rank: out[r*n .. r*n+n) are rank r's. Blocking.
  virtual void gather_values(std::span<const double> mine, std::span<double> all) = 0;

  // Tells every peer to stop; their waits throw. Does not block, may be called from any thread.
  virtual void abort(const std::string& reason) = 0;

  // Ring-equivalent payload bytes of this rank since the start, by the contract's formula.
  virtual int64_t wire_bytes() const = 0;
};

}  // namespace dstrain
