#include "runtime/comm/self_comm.h"

#include <algorithm>
#include <cstring>

#include "runtime/core/error.h"

namespace dstrain {

std::unique_ptr<Communicator> SelfComm::split(std::span<const int> ranks) {
  throw_if_aborted();
  check(ranks.size() == 1 && ranks[0] == 0, "a split of 1 rank into others than rank 0");
  return std::make_unique<SelfComm>(this);
}

Memory SelfComm::allocate(int64_t bytes, const std::string& what) {
  throw_if_aborted();
  return Memory::anonymous(bytes, what);
}

Work SelfComm::copy(const Tensor& in, const Tensor& out) {
  throw_if_aborted();
  check(in.dtype == out.dtype && in.elements() == out.elements(), "a copy of {} {} to {} {}",
        in.elements(), name_of(in.dtype), out.elements(), name_of(out.dtype));
  if (in.data != out.data && in.bytes() > 0)
    std::memmove(out.data, in.data, static_cast<size_t>(in.bytes()));
  return {this, 0};
}

Work SelfComm::all_reduce(Tensor inout) {
  return copy(inout, inout);
}

Work SelfComm::reduce_scatter(Tensor in, Tensor out) {
  return copy(in, out);
}

Work SelfComm::all_gather(Tensor in, Tensor out) {
  return copy(in, out);
}

Work SelfComm::all_to_all(Tensor in, Tensor out) {
  return copy(in, out);
}

Work SelfComm::exchange_rows(Tensor in, Tensor out, RowCounts counts) {
  in.shape = out.shape = {counts.received(0)};
  return copy(in, out);
}

Work SelfComm::broadcast(Tensor inout, int root) {
  check(root == 0, "broadcast from rank {} of 1", root);
  return copy(inout, inout);
}

Work SelfComm::send(Tensor) {
  throw InternalError("a message in a communicator of 1 rank");
}

Work SelfComm::recv(Tensor) {
  throw InternalError("a message in a communicator of 1 rank");
}

void SelfComm::barrier() {
  throw_if_aborted();
}

void SelfComm::gather_values(std::span<const double> mine, std::span<double> all) {
  throw_if_aborted();
  check(all.size() == mine.size(), "gather_values of {} values into {}", mine.size(), all.size());
  std::copy(mine.begin(), mine.end(), all.begin());
}

void SelfComm::abort(const std::string& reason) {
  if (parent_ != nullptr) return parent_->abort(reason);
  const std::lock_guard lock(mutex_);
  if (!aborted_) abort_reason_ = reason;
  aborted_ = true;
}

void SelfComm::throw_if_aborted() const {
  if (parent_ != nullptr) return parent_->throw_if_aborted();
  const std::lock_guard lock(mutex_);
  if (aborted_) fail_run("rank 0 stopped the run: {}", abort_reason_);
}

}  // namespace dstrain
