#include "kernels/newton_schulz.h"

#include <array>
#include <utility>

#include "kernels/operands.h"

namespace dstrain {
namespace {

constexpr int64_t kAlignBytes = 256;

int64_t align(int64_t bytes) {
  return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

NewtonSchulzShape shape_of(const KernelSpec& spec) {
  return {spec.in[0].shape[0], spec.in[0].shape[1]};
}

// The kernels of an iteration, or what `of` returns for their specs.
template <class T>
struct Parts {
  T norm;    // of x
  T gram;    // (n,m) (n,m)^T
  T square;  // (n,n) (n,n)^T
  T apply;   // (n,n) (n,m)

  template <class Of>
  Parts(const KernelSpec& spec, const Of& of) {
    const auto [n, m, transposed] = shape_of(spec);
    const TensorSpec wide{Shape{n, m}}, small{Shape{n, n}}, sum{Shape{1}, DType::f64};
    const auto part = [&](OpKind op, std::vector<TensorSpec> in, const TensorSpec& out) {
      return of(
          KernelSpec{.op = op, .attrs = {}, .in = in, .out = {&out, 1}, .threads = spec.threads});
    };
    norm = part(OpKind::sum_squares, {wide}, sum);
    gram = part(OpKind::linear, {wide, wide}, small);
    square = part(OpKind::linear, {small, small}, small);
    apply = part(OpKind::linear_input_grad, {small, wide}, wide);
  }
};

// Scratch memory: matrices one after the other, the square sum, and what the kernels need.
struct Scratch {
  int64_t wide, small, total;  // bytes of an (n,m) and an (n,n), of everything
  int smalls;                  // how many (n,n)

  Scratch(const KernelSpec& spec, const KernelSource& source) {
    const NewtonSchulzShape shape = shape_of(spec);
    const Parts<int64_t> bytes(spec, source.workspace_bytes);
    wide = align(shape.n * shape.m * size_of(DType::f32));
    small = align(shape.n * shape.n * size_of(DType::f32));
    smalls = iterates_on_gram(attrs_as<OrthogonalizeAttrs>(spec.attrs), shape) ? 5 : 2;
    total =
        of_kernels() + std::max({bytes.norm, bytes.gram, bytes.square, bytes.apply}) + kAlignBytes;
  }
  int64_t of_square_sum() const { return 2 * wide + smalls * small; }
  int64_t of_kernels() const { return of_square_sum() + kAlignBytes; }
};

class NewtonSchulz final : public Kernel {
 public:
  NewtonSchulz(const KernelSpec& spec, const KernelSource& source,
               std::unique_ptr<ElementwiseMath> math)
      : shape_(shape_of(spec)),
        gram_(iterates_on_gram(attrs_as<OrthogonalizeAttrs>(spec.attrs), shape_)),
        scratch_(spec, source),
        kernels_(spec, source.make),
        math_(std::move(math)) {}

  void run(const KernelCall& call) const override {
    Iteration it{*this, call};
    it.begin();
    gram_ ? it.on_gram() : it.step_by_step();
  }

 private:
  // One run: what lies where in scratch memory.
  struct Iteration {
    const NewtonSchulz& k;
    const KernelCall& call;
    std::byte* const base = aligned(workspace<std::byte>(call, k.scratch_.total));
    float *x = at(0), *y = at(k.scratch_.wide);
    const int64_t n = k.shape_.n, m = k.shape_.m;

    static std::byte* aligned(std::byte* p) {
      const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(p) % kAlignBytes);
      return p + (kAlignBytes - past) % kAlignBytes;
    }
    float* at(int64_t bytes) const { return reinterpret_cast<float*>(base + bytes); }
    float* small(int i) const { return at(2 * k.scratch_.wide + i * k.scratch_.small); }

    void run(const Kernel& kernel, std::initializer_list<Tensor> in, const Tensor& out) const {
      KernelCall one;
      one.in = {in.begin(), in.size()};
      one.out = {&out, 1};
      one.workspace = {base + k.scratch_.of_kernels(),
                       {k.scratch_.total - k.scratch_.of_kernels() - kAlignBytes},
                       DType::u8};
      one.state = call.state;
      kernel.run(one);
    }
    Tensor wide(float* p) const { return {p, {n, m}, DType::f32}; }
    Tensor square(float* p) const { return {p, {n, n}, DType::f32}; }

    // to = from from^T
    void gram(float* from, float* to) const {
      run(*k.kernels_.gram, {wide(from), wide(from)}, square(to));
    }
    // to = a b^T
    void multiply(float* a, float* b, float* to) const {
      run(*k.kernels_.square, {square(a), square(b)}, square(to));
    }
    // to = a from
    void apply(float* a, float* from, float* to) const {
      run(*k.kernels_.apply, {square(a), wide(from)}, wide(to));
    }
    // to = alpha a + b
    void add(float alpha, const float* a, const float* b, float* to) const {
      k.math_->combine(n * n, alpha, a, 1, b, to);
    }
    void finish(float alpha) const {
      k.math_->write(k.shape_, alpha, x, y, call.out[0].as<float>());
    }

    void begin() const {
      double* const sum = reinterpret_cast<double*>(base + k.scratch_.of_square_sum());
      run(*k.kernels_.norm, {call.in[0]}, {sum, {1}, DType::f64});
      k.math_->normalize(k.shape_, call.in[0].as<const float>(), sum, x);
    }

    void step_by_step() {
      float *const a = small(0), *const squared = small(1);
      for (int step = 0; step < kNewtonSchulzSteps; ++step) {
        gram(x, a);
        multiply(a, a, squared);
        k.math_->combine(n * n, kNewtonSchulzB, a, kNewtonSchulzC, squared, a);
        apply(a, x, y);
        if (step + 1 == kNewtonSchulzSteps) return finish(kNewtonSchulzA);
        k.math_->combine(n * m, kNewtonSchulzA, x, 1, y, x);
      }
    }

    void on_gram() {
      float *a = small(0), *next = small(1), *const z = small(2),
            *q = small(3), *const product = small(4);
      gram(x, a);
      for (int step = 0; step < kNewtonSchulzSteps; ++step) {
        if (step == kGramRestart) {
          apply(q, x, y);
          std::swap(x, y);
          gram(x, a);
        }
        multiply(a, a, product);
        k.math_->combine(n * n, kNewtonSchulzB, a, kNewtonSchulzC, product, z);
        if (step == 0 || step == kGramRestart) {
          k.math_->combine(n * n, 1, z, 0, z, q);
          k.math_->add_diagonal(n, kNewtonSchulzA, q);
        } else {
          multiply(q, z, product);
          add(kNewtonSchulzA, q, product, q);
        }
        if (step + 1 == kGramRestart || step + 1 == kNewtonSchulzSteps) continue;
        multiply(a, z, product);
        add(kNewtonSchulzA, a, product, next);
        multiply(next, z, product);
        add(kNewtonSchulzA, next, product, a);
      }
      apply(q, x, y);
      finish(0);
    }
  };

  const NewtonSchulzShape shape_;
  const bool gram_;
  const Scratch scratch_;
  const Parts<std::unique_ptr<Kernel>> kernels_;
  const std::unique_ptr<ElementwiseMath> math_;
};

}  // namespace

int64_t newton_schulz_workspace_bytes(const KernelSpec& spec, const KernelSource& source) {
  return Scratch(spec, source).total;
}

std::unique_ptr<Kernel> make_newton_schulz(const KernelSpec& spec, const KernelSource& source,
                                           std::unique_ptr<ElementwiseMath> math) {
  return std::make_unique<NewtonSchulz>(spec, source, std::move(math));
}

}  // namespace dstrain
