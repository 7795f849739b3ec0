// Groups of rows of an expert with many rows have all threads, one after the other; the others are divided among threads, which
// take the next one when they have finished one. No result depends on which of the two it is. Lower bound: the FLOPs of all rows, or
// reading the weights of the experts that have rows.
#include "kernels/cpu/grouped/grouped.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "kernels/cpu/products/products.h"
#include "kernels/operands.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {
namespace {

constexpr int64_t kLineBytes = 64;
// The rows at which products need the most scratch memory are among the first so many of a thread, or all.
constexpr int64_t kStep = 32, kMostSteps = 64;

// The sizes of the products.
struct Grouped {
  Product product;  // of one group: its rows are not set
  int64_t rows = 0;
  int64_t groups = 0;   // of rows
  int64_t weights = 0;  // of groups, which these have in turns

  explicit Grouped(const KernelSpec& spec) {
    const bool of_weight = spec.op == OpKind::grouped_weight_grad;
    const bool forward = spec.op == OpKind::grouped_linear;
    check(of_weight || forward || spec.op == OpKind::grouped_input_grad,
          "{} is no product of experts", name_of(spec.op));
    const TensorSpec& features = forward ? spec.out[0] : spec.in[0];
    const TensorSpec& channels = of_weight ? spec.in[1] : forward ? spec.in[0] : spec.out[0];
    product = {.op = of_weight ? OpKind::linear_weight_grad
                     : forward ? OpKind::linear
                               : OpKind::linear_input_grad,
               .dtype = spec.in[0].dtype,
               .in_features = columns(channels),
               .out_features = columns(features),
               .threads = spec.threads};
    rows = dstrain::rows(channels);
    groups = elements(spec.in[2]);
    weights = of_weight ? groups : groups / attrs_as<GroupedAttrs>(spec.attrs).senders;
  }

  Product of(int64_t count, int threads) const {
    Product p = product;
    p.rows = count;
    p.threads = threads;
    return p;
  }

  // Returns the scratch memory of products of any number of rows.
  int64_t bytes(int threads) const {
    int64_t most = 0;
    for (int64_t i = 1; i <= kMostSteps * threads + 1; ++i) {
      const bool last = i * kStep >= rows || i > kMostSteps * threads;
      most = std::max(most, product_workspace_bytes(of(last ? rows : i * kStep, threads)));
      if (last) break;
    }
    return (most + kLineBytes - 1) / kLineBytes * kLineBytes;
  }

  // Returns whether all threads together have the product of so many rows.
  bool is_shared(int64_t count) const { return count * 4 * product.threads > rows; }
};

class GroupedKernel final : public Kernel {
 public:
  explicit GroupedKernel(const KernelSpec& spec)
      : g_(spec),
        alone_(g_.bytes(1)),
        all_(std::max(g_.bytes(spec.threads), alone_ * spec.threads)) {}

  int64_t bytes() const { return all_; }

  void run(const KernelCall& call) const override {
    const auto* const ends = data<const int32_t>(call.in, 2);
    const int threads = g_.product.threads;
    char* const scratch = workspace<char>(call, all_);
    const auto begin = [ends](int64_t e) { return e > 0 ? int64_t{ends[e - 1]} : 0; };
    for (int64_t e = 0; e < g_.groups; ++e)
      if (threads == 1 || g_.is_shared(ends[e] - begin(e)))
        multiply(call, e, begin(e), ends[e], threads, scratch);
    if (threads == 1) return;
    std::atomic<int64_t> next{0};
    run_parts(std::min<int64_t>(threads, g_.groups), [&](int64_t part) {
      for (int64_t e = next++; e < g_.groups; e = next++)
        if (!g_.is_shared(ends[e] - begin(e)))
          multiply(call, e, begin(e), ends[e], 1, scratch + part * alone_);
    });
  }

 private:
  // Returns `count` rows of a matrix, from row `first` on.
  static Tensor part(const Tensor& all, int64_t first, int64_t count, int64_t columns) {
    return {all.as<char>() + first * columns * size_of(all.dtype), {count, columns}, all.dtype};
  }

  void multiply(const KernelCall& call, int64_t group, int64_t begin, int64_t end, int threads,
                char* scratch) const {
    const Product p = g_.of(end - begin, threads);
    const int64_t n = p.out_features, k = p.in_features;
    const auto rows = [&](const Tensor& t, int64_t columns) {
      return part(t, begin, end - begin, columns);
    };
    const auto weight = [&](const Tensor& t) { return part(t, group % g_.weights * n, n, k); };
    std::array<Tensor, 2> in;
    std::array<Tensor, 1> out;
    switch (p.op) {
      case OpKind::linear:
        in = {rows(call.in[0], k), weight(call.in[1])};
        out = {rows(call.out[0], n)};
        break;
      case OpKind::linear_input_grad:
        in = {rows(call.in[0], n), weight(call.in[1])};
        out = {rows(call.out[0], k)};
        break;
      default:
        in = {rows(call.in[0], n), rows(call.in[1], k)};
        out = {weight(call.out[0])};
        if (p.rows == 0 && !call.accumulate)
          std::memset(out[0].data, 0, static_cast<size_t>(out[0].bytes()));
    }
    if (p.rows == 0) return;
    const Tensor own{scratch, {threads == 1 ? alone_ : all_}, DType::u8};
    run_product(p, {.in = in, .out = out, .workspace = own, .accumulate = call.accumulate});
  }

  Grouped g_;
  int64_t alone_, all_;
};

}  // namespace

int64_t grouped_workspace_bytes(const KernelSpec& spec) {
  return GroupedKernel(spec).bytes();
}

std::unique_ptr<Kernel> make_grouped(const KernelSpec& spec) {
  return std::make_unique<GroupedKernel>(spec);
}

}  // namespace dstrain
