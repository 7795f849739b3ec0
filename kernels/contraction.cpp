#include "kernels/contraction.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/operands.h"
#include "runtime/core/error.h"
#include "runtime/ir/views/general_attrs.h"

namespace dstrain {
namespace {

constexpr int64_t kAlign = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// An operand as a product reads it: matrices of (rows, columns), one after the other.
struct Matrices {
  View view{};    // of the space (batch, rows, columns)
  Shape batch{};  // 1 where all products read the same
  int64_t rows = 0, columns = 0;
  bool copied = false;

  Shape space() const {
    Shape all = batch;
    all.append(rows);
    all.append(columns);
    return all;
  }
  int64_t elements() const { return space().elements(); }
};

// Returns an operand that is stored with `columns` of its matrices side by side, or else has to be copied so.
Matrices matrices_of(const View& view, const Shape& batch, int64_t rows, int64_t columns,
                     bool exchanged) {
  Matrices m{.view = view, .batch = batch, .rows = rows, .columns = columns};
  const auto row = static_cast<size_t>(batch.rank), column = row + 1;
  if (exchanged) {
    std::swap(m.view.strides[row], m.view.strides[column]);
    std::swap(m.rows, m.columns);
  }
  m.copied = (m.columns > 1 && m.view.strides[column] != 1) ||
             (m.rows > 1 && m.view.strides[row] != m.columns);
  for (int d = 0; d < batch.rank; ++d)
    if (view.strides[static_cast<size_t>(d)] == 0) m.batch.dims[static_cast<size_t>(d)] = 1;
  return m;
}

// How a contraction is computed: the product of two matrices, and how it reads them.
struct Way {
  OpKind product{};
  Matrices a, b;
  int64_t copies() const { return (a.copied ? a.elements() : 0) + (b.copied ? b.elements() : 0); }
};

// Returns the way with the fewest copies. Sums in f32 of 16-bit operands, and those over a batch, are those of a weight's
// gradient.
Way way_of(const ContractAttrs& c, DType values, DType result) {
  const auto way = [&c](OpKind product, bool a_exchanged, bool b_exchanged) {
    return Way{product, matrices_of(c.a, c.batch, c.m, c.k, a_exchanged),
               matrices_of(c.b, c.batch, c.n, c.k, b_exchanged)};
  };
  std::vector<Way> ways;
  if (values == result && c.summed == 0) {
    ways.push_back(way(OpKind::linear, false, false));
    ways.push_back(way(OpKind::linear_input_grad, false, true));
  }
  if (result == DType::f32) ways.push_back(way(OpKind::linear_weight_grad, true, true));
  check(!ways.empty(), "contract: {} products of {} operands", name_of(result), name_of(values));
  return *std::ranges::min_element(ways, {}, &Way::copies);
}

// Where the scratch memory of a contraction has its parts, in bytes.
struct Scratch {
  int64_t a = 0, b = 0, result = 0, parts = 0, end = 0;
};

class Contraction final : public Kernel {
 public:
  Contraction(const KernelLibrary& library, const KernelSpec& spec)
      : attrs_(attrs_as<ContractAttrs>(spec.attrs)),
        values_(spec.in[0].dtype),
        result_(spec.out[0].dtype),
        way_(way_of(attrs_, values_, result_)) {
    const TensorSpec in[]{
        {{way_.a.rows, way_.a.columns}, values_}, {{way_.b.rows, way_.b.columns}, values_}, {}};
    const TensorSpec out[]{{{attrs_.m, attrs_.n}, result_}};
    const bool weights = way_.product == OpKind::linear;
    const KernelSpec product{
        way_.product, {}, {in, weights ? size_t{3} : size_t{2}}, out, spec.threads};
    add_part(library, product, product_);
    if (way_.a.copied) add_copy(library, way_.a, spec.in[0], spec.threads, copy_a_);
    if (way_.b.copied) add_copy(library, way_.b, spec.in[1], spec.threads, copy_b_);
    if (adds_afterwards()) {
      const TensorSpec whole[]{{spec.out[0].shape, result_}};
      add_part(library, {OpKind::map, MapAttrs{Formula::input(0)}, whole, whole, spec.threads},
               add_);
    }
    scratch_.a = aligned(parts_bytes_);
    scratch_.b = scratch_.a + (way_.a.copied ? aligned(way_.a.elements() * size_of(values_)) : 0);
    scratch_.result =
        scratch_.b + (way_.b.copied ? aligned(way_.b.elements() * size_of(values_)) : 0);
    scratch_.end = scratch_.result;
    if (adds_afterwards())
      scratch_.end += aligned(attrs_.batch.elements() * attrs_.m * attrs_.n * size_of(result_));
  }

  int64_t workspace_bytes() const { return scratch_.end; }

  void run(const KernelCall& call) const override {
    char* const scratch = workspace<char>(call, scratch_.end);
    const void* const a = operand(call, 0, copy_a_.get(), way_.a, scratch + scratch_.a);
    const void* const b = operand(call, 1, copy_b_.get(), way_.b, scratch + scratch_.b);
    const bool apart = call.accumulate && adds_afterwards();
    char* const result = apart ? scratch + scratch_.result : static_cast<char*>(call.out[0].data);
    const int64_t products = attrs_.batch.elements();
    const int64_t results = number_of_results();
    for (int64_t i = 0; i < products; ++i) {
      const Tensor in[]{matrix(a, way_.a, i), matrix(b, way_.b, i), {}};
      const Tensor out[]{{result + i % results * attrs_.m * attrs_.n * size_of(result_),
                          {attrs_.m, attrs_.n},
                          result_}};
      run_part(*product_, call, in, out, i >= results || (call.accumulate && !apart));
    }
    if (!apart) return;
    const Tensor sum[]{{result, call.out[0].shape, result_}};
    run_part(*add_, call, sum, call.out, true);
  }

 private:
  int64_t number_of_results() const {
    int64_t results = 1;
    for (int d = attrs_.summed; d < attrs_.batch.rank; ++d) results *= attrs_.batch[d];
    return results;
  }

  // linear and linear_input_grad replace what is there.
  bool adds_afterwards() const {
    return result_ == DType::f32 && way_.product != OpKind::linear_weight_grad;
  }

  void add_part(const KernelLibrary& library, const KernelSpec& spec,
                std::unique_ptr<Kernel>& kernel) {
    kernel = library.make(spec);
    parts_bytes_ = std::max(parts_bytes_, library.workspace_bytes(spec));
  }

  void add_copy(const KernelLibrary& library, const Matrices& m, const TensorSpec& from,
                int threads, std::unique_ptr<Kernel>& kernel) {
    const TensorSpec to{m.space(), values_};
    add_part(library,
             {OpKind::map,
              MapAttrs{Formula::input(0), m.space(), {m.view}},
              {&from, 1},
              {&to, 1},
              threads},
             kernel);
  }

  void run_part(const Kernel& kernel, const KernelCall& call, std::span<const Tensor> in,
                std::span<const Tensor> out, bool accumulate) const {
    KernelCall one = call;
    one.in = in;
    one.out = out;
    one.accumulate = accumulate;
    one.workspace = {call.workspace.data, {aligned(parts_bytes_)}, DType::u8};
    kernel.run(one);
  }

  const void* operand(const KernelCall& call, size_t i, const Kernel* copy, const Matrices& m,
                      void* to) const {
    if (!copy) return call.in[i].data;
    const Tensor copied[]{{to, m.space(), values_}};
    run_part(*copy, call, call.in.subspan(i, 1), copied, false);
    return to;
  }

  // Returns the matrix that product i of the batch reads.
  Tensor matrix(const void* data, const Matrices& m, int64_t i) const {
    const View view = m.copied ? dense_view(m.space()) : m.view;
    int64_t at = m.copied ? 0 : view.offset;
    for (int d = attrs_.batch.rank - 1; d >= 0; --d) {
      if (m.batch[d] > 1) at += i % attrs_.batch[d] * view.strides[static_cast<size_t>(d)];
      i /= attrs_.batch[d];
    }
    // A kernel does not write to what it reads.
    char* const bytes = static_cast<char*>(const_cast<void*>(data));
    return {bytes + at * size_of(values_), {m.rows, m.columns}, values_};
  }

  ContractAttrs attrs_;
  DType values_, result_;
  Way way_;
  std::unique_ptr<Kernel> product_, copy_a_, copy_b_, add_;
  int64_t parts_bytes_ = 0;
  Scratch scratch_;
};

}  // namespace

int64_t contraction_workspace_bytes(const KernelLibrary& library, const KernelSpec& spec) {
  return Contraction(library, spec).workspace_bytes();
}

std::unique_ptr<Kernel> make_contraction(const KernelLibrary& library, const KernelSpec& spec) {
  return std::make_unique<Contraction>(library, spec);
}

}  // namespace dstrain
