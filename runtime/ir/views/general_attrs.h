// The attributes of the general ops. Each walks through an index space and reads its operands through views
// (runtime/ir/views/view.h). Everything is computed in f32, and a result is rounded once to its dtype.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/ir/formula/formula.h"
#include "runtime/ir/views/view.h"

namespace dstrain {

// The attributes of map: the result has the formula's value at each index of the space, in order.
struct MapAttrs {
  Formula formula{};
  // None: each operand has the elements of the result, or is broadcast over its rows or columns
  // (runtime/ir/views/broadcast.h).
  Shape space{};
  std::vector<View> views{};
  bool detached = false;  // no gradient goes back through it
  bool operator==(const MapAttrs&) const = default;
};

// The index space of a map, and the views of its operands: its own, or the rows and columns of its result.
struct MapWalk {
  Shape space{};
  std::vector<View> views{};
};
MapWalk walk_of(const Shape& result, std::span<const Shape> operands, const MapAttrs& attrs);

enum class Reduction : uint8_t { sum, maximum, minimum };

// The attributes of reduce: the result has an element for each index of the space's first `kept` dimensions: the sum, the
// largest or the smallest of the formula's values at the indices of the others.
struct ReduceAttrs {
  Reduction kind = Reduction::sum;
  Formula formula = Formula::input(0);
  Shape space{};
  int kept = 0;
  std::vector<View> views{};
  bool detached = false;  // no gradient goes back through it
  bool operator==(const ReduceAttrs&) const = default;
};

// Returns whether the results of a reduction lie side by side in its operands, and what it adds up does not.
bool reduces_columns(const ReduceAttrs& attrs);

// The attributes of contract: result (batch, m, n) = the sum over k of a (batch, m, k) and b (batch, n, k), and over the first
// `summed` dimensions of the batch, which the result has not.
struct ContractAttrs {
  Shape batch{};
  int summed = 0;
  int64_t m = 0, n = 0, k = 0;
  View a{}, b{};  // of the spaces (batch, m, k) and (batch, n, k)
  bool operator==(const ContractAttrs&) const = default;
};

// The attributes of take and put: the element of table x that belongs to an index of the space is the one that `table`
// reads, further on by the product of each operand of indices and its stride.
struct TakeAttrs {
  // One of the operands of indices, i32: `size` is how many there are, and -1 is the last one.
  struct Indices {
    View view{};
    int64_t stride = 0, size = 0;
    bool operator==(const Indices&) const = default;
  };
  Shape space{};
  View table{};
  std::vector<Indices> indices{};
  bool operator==(const TakeAttrs&) const = default;
};

// The lines of an operand (n, size, apart): consecutive elements of a line are `apart` elements from each other.
struct Lines {
  int64_t size = 1, apart = 1;
  // Returns how many lines `elements` are.
  int64_t count(int64_t elements) const { return elements / size; }
  bool operator==(const Lines&) const = default;
};

// The attributes of scan: element i of a line of the result is the sum of elements 0 to i.
struct ScanAttrs {
  Lines lines{};
  bool reversed = false;   // of elements i to size - 1
  bool exclusive = false;  // without element i
  bool operator==(const ScanAttrs&) const = default;
};

// The attributes of sort: the first `kept` elements of each line, the smallest first. Equal elements stay in order, and NaN is
// larger than every number.
struct SortAttrs {
  Lines lines{};
  int64_t kept = 1;
  bool descending = false;  // the largest first
  bool operator==(const SortAttrs&) const = default;
};

// The attributes of uniform. The result (outer, samples, inner) has `inner` neighbouring elements of each of `samples` samples of
// the micro-batch, some times over; element (o, s, i) is number o * inner + i of sample s.
struct UniformAttrs {
  uint32_t site = 0;  // where values are drawn, unique in the model (philox.h)
  int64_t samples = 1, inner = 1;
  bool operator==(const UniformAttrs&) const = default;
};

// The attributes of window and window_grad: windows of `kernel` positions, `dilation` apart, begin `stride` positions apart,
// the first one `padding` positions before the first of `size`. There are `out` of them. A position has `channels` elements of
// each of `samples`, which have windows of their own, and what is outside reads as `outside`.
struct WindowAttrs {
  struct Dimension {
    int64_t size = 1, kernel = 1, stride = 1, padding = 0, dilation = 1, out = 1;
    bool operator==(const Dimension&) const = default;

    // Returns the position that window `o` has at `k`; -1: it is outside.
    constexpr int64_t element(int64_t o, int64_t k) const {
      const int64_t i = o * stride + k * dilation - padding;
      return i < size ? i < 0 ? -1 : i : -1;
    }
    // Returns the window that has position i at `k`; -1: none has.
    constexpr int64_t window(int64_t i, int64_t k) const {
      const int64_t from = i + padding - k * dilation;
      return from >= 0 && from % stride == 0 && from / stride < out ? from / stride : -1;
    }
  };
  static constexpr int kDimensions = 3;

  int64_t planes = 1;    // of which each has all dimensions
  int64_t samples = 1;   // of each position of a plane, one after the other
  int64_t channels = 1;  // elements of a sample's position, side by side
  std::array<Dimension, kDimensions> dimensions{};
  float outside = 0;

  // Return the positions of a plane, those of a window, and the number of windows of a plane.
  int64_t positions() const { return product(&Dimension::size); }
  int64_t kernel() const { return product(&Dimension::kernel); }
  int64_t windows() const { return product(&Dimension::out); }
  bool operator==(const WindowAttrs&) const = default;

 private:
  int64_t product(int64_t Dimension::*size) const {
    int64_t all = 1;
    for (const Dimension& dimension : dimensions) all *= dimension.*size;
    return all;
  }
};

// The attributes of a convolution and its gradients: windows of one plane, and the outputs of each.
struct ConvolutionAttrs {
  WindowAttrs windows{};
  int64_t outputs = 1;
  bool operator==(const ConvolutionAttrs&) const = default;

  // Returns the elements of its input, weight and result.
  int64_t inputs() const { return windows.positions() * windows.samples * windows.channels; }
  int64_t weights() const { return outputs * windows.channels * windows.kernel(); }
  int64_t results() const { return windows.windows() * windows.samples * outputs; }
};

// The attributes of sum_loss.
struct SumLossAttrs {
  float weight = 1;  // of the gradient, not of the loss
  bool operator==(const SumLossAttrs&) const = default;
};

}  // namespace dstrain
