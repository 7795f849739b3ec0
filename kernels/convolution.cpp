#include "kernels/convolution.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kernels/operands.h"
#include "runtime/ir/op.h"
#include "runtime/ir/views/general_attrs.h"

namespace dstrain {
namespace {

constexpr int64_t kAlign = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// A kernel of the library, and the specs that it was made for.
struct Part {
  std::unique_ptr<Kernel> kernel{};
  int64_t workspace = 0;

  Part(const KernelLibrary& library, const KernelSpec& spec)
      : kernel(library.make(spec)), workspace(library.workspace_bytes(spec)) {}
};

// The sizes of a convolution as a product: rows (windows of all samples), inner (places and channels), outputs.
struct Sizes {
  explicit Sizes(const ConvolutionAttrs& c)
      : rows(c.windows.windows() * c.windows.samples),
        inner(c.windows.kernel() * c.windows.channels),
        outputs(c.outputs) {}
  int64_t rows, inner, outputs;
};

// Returns a copy of weights of which `from` has (outputs, a, b) and the result (outputs, b, a).
MapAttrs exchanged(int64_t outputs, int64_t a, int64_t b) {
  return {Formula::input(0), {outputs, b, a}, {View{.strides = {a * b, 1, b}}}};
}

class Convolution final : public Kernel {
 public:
  Convolution(const KernelLibrary& library, const KernelSpec& spec)
      : op_(spec.op),
        attrs_(attrs_as<ConvolutionAttrs>(spec.attrs)),
        sizes_(attrs_),
        dtype_(spec.in[0].dtype),
        copy_(copy_of(library, spec)),
        product_(product_of(library, spec)),
        windows_(windows_of(library, spec)) {}

  int64_t workspace_bytes() const {
    return weight_bytes() + window_bytes() +
           std::max({copy_.workspace, product_.workspace, windows_ ? windows_->workspace : 0});
  }

  void run(const KernelCall& call) const override {
    char* const memory = workspace<char>(call, workspace_bytes());
    const DType of_weight = is_weight_grad() ? DType::f32 : dtype_;
    const Tensor weight{memory, {sizes_.outputs, sizes_.inner}, of_weight};
    const Tensor& image = is_weight_grad()                        ? call.in[1]
                          : op_ == OpKind::convolution_input_grad ? call.out[0]
                                                                  : call.in[0];
    const Tensor windows{
        windows_ ? memory + weight_bytes() : image.data, {sizes_.rows, sizes_.inner}, dtype_};
    const Tensor& values = op_ == OpKind::convolution ? call.out[0] : call.in[0];
    const Tensor rows{values.data, {sizes_.rows, sizes_.outputs}, dtype_};
    const auto all_windows = [&] { run_part(*windows_, call, {&image, 1}, {&windows, 1}, false); };
    if (is_weight_grad()) {
      if (windows_) all_windows();
      const Tensor in[]{rows, windows};
      run_part(product_, call, in, {&weight, 1}, false);
      return run_part(copy_, call, {&weight, 1}, call.out, call.accumulate);
    }
    run_part(copy_, call, call.in.subspan(1, 1), {&weight, 1}, false);
    if (op_ == OpKind::convolution) {
      if (windows_) all_windows();
      const Tensor in[]{windows, weight, {}};
      return run_part(product_, call, in, {&rows, 1}, false);
    }
    const Tensor in[]{rows, weight, {}};
    run_part(product_, call, in, {&windows, 1}, false);
    if (windows_) run_part(*windows_, call, {&windows, 1}, {&image, 1}, false);
  }

 private:
  bool is_weight_grad() const { return op_ == OpKind::convolution_weight_grad; }
  int64_t weight_bytes() const {
    return aligned(attrs_.weights() * size_of(is_weight_grad() ? DType::f32 : dtype_));
  }
  int64_t window_bytes() const {
    return windows_ ? aligned(sizes_.rows * sizes_.inner * size_of(dtype_)) : 0;
  }

  // The weight with its channels last, or its gradient with its places last.
  Part copy_of(const KernelLibrary& library, const KernelSpec& spec) const {
    const int64_t channels = attrs_.windows.channels, kernel = attrs_.windows.kernel();
    const MapAttrs map = is_weight_grad() ? exchanged(sizes_.outputs, kernel, channels)
                                          : exchanged(sizes_.outputs, channels, kernel);
    const TensorSpec weight{map.space, is_weight_grad() ? DType::f32 : dtype_};
    return {library, {OpKind::map, map, {&weight, 1}, {&weight, 1}, spec.threads}};
  }

  Part product_of(const KernelLibrary& library, const KernelSpec& spec) const {
    const TensorSpec rows{{sizes_.rows, sizes_.outputs}, dtype_},
        windows{{sizes_.rows, sizes_.inner}, dtype_},
        weight{{sizes_.outputs, sizes_.inner}, is_weight_grad() ? DType::f32 : dtype_};
    if (is_weight_grad()) {
      const TensorSpec in[]{rows, windows};
      return {library, {OpKind::linear_weight_grad, {}, in, {&weight, 1}, spec.threads}};
    }
    if (op_ == OpKind::convolution) {
      const TensorSpec in[]{windows, weight, {}};
      return {library, {OpKind::linear, {}, in, {&rows, 1}, spec.threads}};
    }
    const TensorSpec in[]{rows, weight, {}};
    return {library, {OpKind::linear_input_grad, {}, in, {&windows, 1}, spec.threads}};
  }

  // Nothing where each window is one position, in their order: the operand itself has the windows.
  std::optional<Part> windows_of(const KernelLibrary& library, const KernelSpec& spec) const {
    if (std::ranges::all_of(attrs_.windows.dimensions, [](const WindowAttrs::Dimension& d) {
          return d.kernel == 1 && d.stride == 1 && d.padding == 0 && d.out == d.size;
        }))
      return std::nullopt;
    const TensorSpec x{{attrs_.inputs()}, dtype_}, windows{{sizes_.rows, sizes_.inner}, dtype_};
    if (op_ == OpKind::convolution_input_grad)
      return Part{library,
                  {OpKind::window_grad, attrs_.windows, {&windows, 1}, {&x, 1}, spec.threads}};
    return Part{library, {OpKind::window, attrs_.windows, {&x, 1}, {&windows, 1}, spec.threads}};
  }

  void run_part(const Part& part, const KernelCall& call, std::span<const Tensor> in,
                std::span<const Tensor> out, bool accumulate) const {
    KernelCall one = call;
    one.in = in;
    one.out = out;
    one.accumulate = accumulate;
    one.workspace = {
        call.workspace.as<char>() + weight_bytes() + window_bytes(), {part.workspace}, DType::u8};
    part.kernel->run(one);
  }

  OpKind op_;
  ConvolutionAttrs attrs_;
  Sizes sizes_;
  DType dtype_;
  Part copy_, product_;
  std::optional<Part> windows_;
};

}  // namespace

int64_t convolution_workspace_bytes(const KernelLibrary& library, const KernelSpec& spec) {
  return Convolution(library, spec).workspace_bytes();
}

std::unique_ptr<Kernel> make_convolution(const KernelLibrary& library, const KernelSpec& spec) {
  return std::make_unique<Convolution>(library, spec);
}

}  // namespace dstrain
