#include "runtime/comm/devices/rank_order_sums.h"

#include <algorithm>
#include <utility>

namespace dstrain {
namespace {

constexpr int64_t kScratchBytes = int64_t{32} << 20;
constexpr int64_t kAlignment =
    64;  // elements: slices and windows begin at aligned addresses if the tensor does

int64_t rounded_up(int64_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

RankOrderSums::RankOrderSums(StreamTransport& transport, Device& device, int rank, int ranks,
                             std::shared_ptr<const RankSum> sum)
    : transport_(transport),
      rank_(rank),
      ranks_(ranks),
      sum_(std::move(sum)),
      scratch_(device.allocate(kScratchBytes, "sums over ranks")),
      to_(static_cast<size_t>(ranks)),
      from_(static_cast<size_t>(ranks)) {}

int64_t RankOrderSums::window_elements(DType dtype) const {
  const int64_t most = kScratchBytes / size_of(dtype) / std::max(ranks_ - 1, 1);
  return std::max(most / kAlignment * kAlignment, kAlignment);
}

Tensor RankOrderSums::part(const Tensor& whole, const Window& window, int r) {
  const int64_t first = r * window.slice + window.begin;
  const int64_t end = std::min((r + 1) * window.slice, whole.elements());
  const int64_t n = std::min(window.count, end - first);
  if (n <= 0) return {};
  return {whole.as<std::byte>() + first * size_of(whole.dtype), {n}, whole.dtype};
}

void RankOrderSums::add_window(const Tensor& whole, const Window& window, void* out,
                               Stream& stream) {
  const Tensor mine = part(whole, window, rank_);
  const int64_t n = mine ? mine.elements() : 0, stride = rounded_up(n);
  for (int r = 0; r < ranks_; ++r) {
    const auto at = static_cast<size_t>(r);
    to_[at] = r == rank_ ? Tensor{} : part(whole, window, r);
    from_[at] = {};
    if (r == rank_ || n == 0) continue;
    const int64_t place = (r < rank_ ? r : r - 1) * stride * size_of(whole.dtype);
    from_[at] = {scratch_.data() + place, {n}, whole.dtype};
  }
  transport_.exchange(to_, from_, stream);
  if (n > 0)
    sum_->add(whole.dtype, {scratch_.data(), stride, mine.data, rank_, ranks_}, out, n, stream);
}

void RankOrderSums::all_reduce(const Tensor& inout, Stream& stream) {
  const int64_t slice = rounded_up((inout.elements() + ranks_ - 1) / ranks_);
  const int64_t most = window_elements(inout.dtype);
  for (int64_t begin = 0; begin < slice; begin += most) {
    const Window window{slice, begin, std::min(most, slice - begin)};
    const Tensor mine = part(inout, window, rank_);
    add_window(inout, window, mine.data, stream);
    for (int r = 0; r < ranks_; ++r) {
      to_[static_cast<size_t>(r)] = r == rank_ ? Tensor{} : mine;
      from_[static_cast<size_t>(r)] = r == rank_ ? Tensor{} : part(inout, window, r);
    }
    transport_.exchange(to_, from_, stream);
  }
}

void RankOrderSums::reduce_scatter(const Tensor& in, const Tensor& out, Stream& stream) {
  const int64_t slice = out.elements(), most = window_elements(in.dtype);
  for (int64_t begin = 0; begin < slice; begin += most)
    add_window(in, {slice, begin, std::min(most, slice - begin)},
               out.as<std::byte>() + begin * size_of(out.dtype), stream);
}

}  // namespace dstrain
