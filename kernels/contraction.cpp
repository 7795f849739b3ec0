#include "kernels/contraction.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "kernels/operands.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"
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
  // Returns the view of one matrix that begins at its first element.
  View matrix() const {
    View one;
    for (size_t d = 0; d < 2; ++d)
      one.strides[d] = view.strides[static_cast<size_t>(batch.rank) + d];
    return one;
  }
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

// The copy of an operand that a product cannot read where it is: of all its matrices, where several products read the same
// one, or else of a matrix right before its product, so that it stays in the caches.
struct Copy {
  std::unique_ptr<Kernel> kernel{};
  bool of_all = false;
  int64_t bytes = 0;  // a multiple of kAlign
};

class Contraction final : public Kernel {
 public:
  Contraction(const KernelLibrary& library, const KernelSpec& spec, int at_once)
      : attrs_(attrs_as<ContractAttrs>(spec.attrs)),
        values_(spec.in[0].dtype),
        result_(spec.out[0].dtype),
        way_(way_of(attrs_, values_, result_)) {
    // Several products at a time, if each thread has many.
    if (at_once > 1 && number_of_results() >= kMostUneven * at_once) at_once_ = at_once;
    const int threads = at_once_ > 1 ? 1 : spec.threads;
    const TensorSpec in[]{
        {{way_.a.rows, way_.a.columns}, values_}, {{way_.b.rows, way_.b.columns}, values_}, {}};
    const TensorSpec out[]{{{attrs_.m, attrs_.n}, result_}};
    const bool weights = way_.product == OpKind::linear;
    add_part(library, {way_.product, {}, {in, weights ? size_t{3} : size_t{2}}, out, threads},
             product_);
    copy_a_ = copy_of(library, way_.a, spec.in[0], spec.threads, at_once > 0);
    copy_b_ = copy_of(library, way_.b, spec.in[1], spec.threads, at_once > 0);
    if (adds_afterwards()) {
      const TensorSpec whole[]{{spec.out[0].shape, result_}};
      add_part(library, {OpKind::map, MapAttrs{Formula::input(0)}, whole, whole, spec.threads},
               add_);
      sum_bytes_ = aligned(attrs_.batch.elements() * attrs_.m * attrs_.n * size_of(result_));
    }
  }

  int64_t workspace_bytes() const {
    return sum_bytes_ + bytes_of_all(copy_a_) + bytes_of_all(copy_b_) + own_bytes() * at_once_;
  }

  void run(const KernelCall& call) const override {
    char* const sums = workspace<char>(call, workspace_bytes());
    char* const all_a = sums + sum_bytes_;
    char* const all_b = all_a + bytes_of_all(copy_a_);
    char* const own = all_b + bytes_of_all(copy_b_);
    const void* const a = copied(call, 0, copy_a_, way_.a, all_a, own);
    const void* const b = copied(call, 1, copy_b_, way_.b, all_b, own);
    const bool apart = call.accumulate && adds_afterwards();
    char* const result = apart ? sums : static_cast<char*>(call.out[0].data);
    // What is added to a result is computed by one thread, in order.
    const int64_t results = number_of_results();
    run_ranges(at_once_, results, [&](int64_t begin, int64_t end) {
      char* const scratch = own + (begin * at_once_ + results - 1) / results * own_bytes();
      for (int64_t i = begin; i < end; ++i)
        add_products(call, a, b, i, result + i * attrs_.m * attrs_.n * size_of(result_),
                     call.accumulate && !apart, scratch);
    });
    if (!apart) return;
    const Tensor sum[]{{result, call.out[0].shape, result_}};
    run_part(*add_, call, sum, call.out, true, own);
  }

 private:
  // With fewer products a thread, some would wait for others.
  static constexpr int64_t kMostUneven = 8;

  int64_t number_of_results() const {
    int64_t results = 1;
    for (int d = attrs_.summed; d < attrs_.batch.rank; ++d) results *= attrs_.batch[d];
    return results;
  }

  // linear and linear_input_grad replace what is there.
  bool adds_afterwards() const {
    return result_ == DType::f32 && way_.product != OpKind::linear_weight_grad;
  }

  static int64_t bytes_of_all(const Copy& copy) { return copy.of_all ? copy.bytes : 0; }
  static int64_t bytes_of_one(const Copy& copy) { return copy.of_all ? 0 : copy.bytes; }
  // Scratch memory of a thread: of the parts, then of the operands of a product.
  int64_t own_bytes() const {
    return aligned(parts_bytes_) + bytes_of_one(copy_a_) + bytes_of_one(copy_b_);
  }

  void add_part(const KernelLibrary& library, const KernelSpec& spec,
                std::unique_ptr<Kernel>& kernel) {
    kernel = library.make(spec);
    parts_bytes_ = std::max(parts_bytes_, library.workspace_bytes(spec));
  }

  Copy copy_of(const KernelLibrary& library, const Matrices& m, const TensorSpec& from, int threads,
               bool on_host) {
    if (!m.copied) return {};
    Copy copy{.of_all = m.batch.elements() < attrs_.batch.elements() || !on_host};
    const Shape space = copy.of_all ? m.space() : Shape{m.rows, m.columns};
    const View view = copy.of_all ? m.view : m.matrix();
    const TensorSpec to{space, values_};
    add_part(library,
             {OpKind::map,
              MapAttrs{Formula::input(0), space, {view}},
              {&from, 1},
              {&to, 1},
              copy.of_all || at_once_ == 1 ? threads : 1},
             copy.kernel);
    copy.bytes = aligned(space.elements() * size_of(values_));
    return copy;
  }

  void run_part(const Kernel& kernel, const KernelCall& call, std::span<const Tensor> in,
                std::span<const Tensor> out, bool accumulate, char* scratch) const {
    KernelCall one = call;
    one.in = in;
    one.out = out;
    one.accumulate = accumulate;
    one.workspace = {scratch, {aligned(parts_bytes_)}, DType::u8};
    kernel.run(one);
  }

  // Copies all matrices of an operand, if its products read copies of all. Returns where they are.
  const void* copied(const KernelCall& call, size_t i, const Copy& copy, const Matrices& m,
                     char* to, char* scratch) const {
    if (!copy.of_all) return call.in[i].data;
    const Tensor all[]{{to, m.space(), values_}};
    run_part(*copy.kernel, call, call.in.subspan(i, 1), all, false, scratch);
    return to;
  }

  // Adds up the products of result i.
  void add_products(const KernelCall& call, const void* a, const void* b, int64_t i, char* result,
                    bool accumulate, char* scratch) const {
    char* const own_a = scratch + aligned(parts_bytes_);
    char* const own_b = own_a + bytes_of_one(copy_a_);
    const int64_t results = number_of_results();
    for (int64_t product = i; product < attrs_.batch.elements(); product += results) {
      const Tensor in[]{matrix(call, a, way_.a, copy_a_, product, own_a, scratch),
                        matrix(call, b, way_.b, copy_b_, product, own_b, scratch),
                        {}};
      const Tensor out[]{{result, {attrs_.m, attrs_.n}, result_}};
      run_part(*product_, call, in, out, product > i || accumulate, scratch);
    }
  }

  // Returns the matrix that product i of the batch reads, which is copied to `own` if it is not in order.
  Tensor matrix(const KernelCall& call, const void* data, const Matrices& m, const Copy& copy,
                int64_t i, char* own, char* scratch) const {
    const View view = copy.of_all ? dense_view(m.space()) : m.view;
    int64_t at = copy.of_all ? 0 : view.offset;
    for (int d = attrs_.batch.rank - 1; d >= 0; --d) {
      if (m.batch[d] > 1) at += i % attrs_.batch[d] * view.strides[static_cast<size_t>(d)];
      i /= attrs_.batch[d];
    }
    // A kernel does not write to what it reads.
    char* const bytes = static_cast<char*>(const_cast<void*>(data));
    const Tensor there{bytes + at * size_of(values_), {m.rows, m.columns}, values_};
    if (!copy.kernel || copy.of_all) return there;
    const Tensor to[]{{own, there.shape, values_}};
    run_part(*copy.kernel, call, {&there, 1}, to, false, scratch);
    return to[0];
  }

  ContractAttrs attrs_;
  DType values_, result_;
  Way way_;
  int at_once_ = 1;  // products
  std::unique_ptr<Kernel> product_, add_;
  Copy copy_a_, copy_b_;
  int64_t parts_bytes_ = 0, sum_bytes_ = 0;
};

}  // namespace

int64_t contraction_workspace_bytes(const KernelLibrary& library, const KernelSpec& spec,
                                    int at_once) {
  return Contraction(library, spec, at_once).workspace_bytes();
}

std::unique_ptr<Kernel> make_contraction(const KernelLibrary& library, const KernelSpec& spec,
                                         int at_once) {
  return std::make_unique<Contraction>(library, spec, at_once);
}

}  // namespace dstrain
