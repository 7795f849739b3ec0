// RankOrderSums: adds the ranks' tensors in rank order, in f32 and with one rounding, over a transport that adds in
// another way. Each rank gets its slice of every rank's tensor, adds, and for an all-reduce sends the result to all: as
// many bytes as in a ring. A tensor is cut into windows, so that scratch memory has a limit.
#pragma once

#include <memory>
#include <vector>

#include "runtime/comm/devices/stream_transport.h"
#include "runtime/core/devices/rank_sum.h"

namespace dstrain {

class RankOrderSums {
 public:
  // For rank `rank` of `ranks`. Allocates its scratch memory on `device`. `transport` and `device` must outlive this
  // object.
  RankOrderSums(StreamTransport& transport, Device& device, int rank, int ranks,
                std::shared_ptr<const RankSum> sum);

  // Returns whether it adds tensors of this dtype. Sums of i32 have no order; a step has none of f64.
  static bool adds(DType dtype) {
    return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
  }
  // Operands are those of the Communicator's.
  void all_reduce(const Tensor& inout, Stream& stream);
  void reduce_scatter(const Tensor& in, const Tensor& out, Stream& stream);

 private:
  // The elements of one tensor that travel at a time: [begin, begin + count) of each slice, as far as it has them.
  struct Window {
    int64_t slice = 0;  // elements from slice to slice
    int64_t begin = 0, count = 0;
  };
  // Returns the part of rank `r`'s slice of `whole` in a window; null if it is empty.
  static Tensor part(const Tensor& whole, const Window& window, int r);
  // Exchanges a window of `whole` and adds this rank's part of it to `out`.
  void add_window(const Tensor& whole, const Window& window, void* out, Stream& stream);
  // Returns the most elements of `dtype` in a window.
  int64_t window_elements(DType dtype) const;

  StreamTransport& transport_;
  int rank_, ranks_;
  std::shared_ptr<const RankSum> sum_;
  Memory scratch_;                 // what the other ranks send
  std::vector<Tensor> to_, from_;  // the messages of an exchange, by rank
};

}  // namespace dstrain
