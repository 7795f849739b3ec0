#include "kernels/cpu/products/dnnl_product.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/cpu/products/dnnl_library.h"
#include "kernels/cpu/products/thread_scope.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Owns one C object of the library.
template <class Object, auto destroy>
class Owned {
 public:
  Owned() = default;
  Owned(Owned&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() {
    if (object_ != nullptr) destroy(object_);
  }
  Object get() const { return object_; }
  Object* put() { return &object_; }

 private:
  Object object_ = nullptr;
};
using Engine = Owned<dnnl_engine_t, dnnl_engine_destroy>;
using Stream = Owned<dnnl_stream_t, dnnl_stream_destroy>;
using Attr = Owned<dnnl_primitive_attr_t, dnnl_primitive_attr_destroy>;
using PostOps = Owned<dnnl_post_ops_t, dnnl_post_ops_destroy>;
using Description = Owned<dnnl_primitive_desc_t, dnnl_primitive_desc_destroy>;
using Primitive = Owned<dnnl_primitive_t, dnnl_primitive_destroy>;
using MemoryObject = Owned<dnnl_memory_t, dnnl_memory_destroy>;

Engine make_engine() {
  limit_dnnl_isa();
  Engine engine;
  check_dnnl(dnnl_engine_create(engine.put(), dnnl_cpu, 0), "creating the engine");
  return engine;
}

dnnl_memory_desc_t describe(int64_t rows, int64_t columns, bool transposed, dnnl_data_type_t type) {
  const dnnl_dims_t dims = {rows, columns};
  const dnnl_dims_t strides = {transposed ? 1 : columns, transposed ? rows : 1};
  dnnl_memory_desc_t md;
  check_dnnl(dnnl_memory_desc_init_by_strides(&md, 2, dims, type, strides), "describing a matrix");
  return md;
}

struct Layouts {
  dnnl_memory_desc_t a, b, bias, c;
};

Layouts layouts_of(const Product& p) {
  const bool weight_grad = p.op == OpKind::linear_weight_grad;
  return {describe(p.m(), p.k(), weight_grad, dnnl_bf16),
          describe(p.k(), p.n(), p.op == OpKind::linear, dnnl_bf16),
          describe(1, p.n(), false, dnnl_bf16),
          describe(p.m(), p.n(), false, weight_grad ? dnnl_f32 : dnnl_bf16)};
}

// The primitive's description; empty where the library has none here.
Description describe_product(const Product& p, bool accumulate, const Engine& engine) {
  const Layouts layouts = layouts_of(p);
  dnnl_matmul_desc_t matmul;
  check_dnnl(dnnl_matmul_desc_init(&matmul, &layouts.a, &layouts.b,
                                   p.bias ? &layouts.bias : nullptr, &layouts.c),
             "describing a product");
  PostOps post;
  check_dnnl(dnnl_post_ops_create(post.put()), "creating post-ops");
  if (p.relu) {
    check_dnnl(dnnl_post_ops_append_eltwise(post.get(), 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f),
               "relu");
  }
  if (accumulate) check_dnnl(dnnl_post_ops_append_sum(post.get(), 1.0f), "sum");
  Attr attr;
  check_dnnl(dnnl_primitive_attr_create(attr.put()), "creating attributes");
  check_dnnl(dnnl_primitive_attr_set_post_ops(attr.get(), post.get()), "setting post-ops");
  check_dnnl(dnnl_primitive_attr_set_scratchpad_mode(attr.get(), dnnl_scratchpad_mode_user),
             "scratchpad");
  Description description;
  const dnnl_status_t status =
      dnnl_primitive_desc_create(description.put(), &matmul, attr.get(), engine.get(), nullptr);
  if (status == dnnl_unimplemented) return {};
  check_dnnl(status, "choosing a product");
  return description;
}

const dnnl_memory_desc_t& scratchpad_of(const Description& description) {
  return *dnnl_primitive_desc_query_md(description.get(), dnnl_query_scratchpad_md, 0);
}

bool can_accumulate(const Product& p) {
  return p.op == OpKind::linear_weight_grad;
}

class DnnlProduct final : public Kernel {
 public:
  explicit DnnlProduct(const Product& product) : product_(product) {
    const ThreadScope scope(product.threads);
    check_dnnl(dnnl_stream_create(stream_.put(), engine_.get(), dnnl_stream_default_flags),
               "creating the stream");
    const Layouts layouts = layouts_of(product);
    a_ = memory(layouts.a);
    b_ = memory(layouts.b);
    c_ = memory(layouts.c);
    if (product.bias) bias_ = memory(layouts.bias);
    write_ = compile(false);
    if (can_accumulate(product)) add_ = compile(true);
  }

  void run(const KernelCall& call) const override {
    const ThreadScope scope(product_.threads);
    const Variant& variant = call.accumulate && can_accumulate(product_) ? add_ : write_;
    std::array<dnnl_exec_arg_t, 5> args;
    int count = 0;
    const auto bind = [&](int index, const MemoryObject& object, void* data) {
      check_dnnl(dnnl_memory_set_data_handle(object.get(), data), "binding an operand");
      args[static_cast<size_t>(count++)] = {index, object.get()};
    };
    bind(DNNL_ARG_SRC, a_, call.in[0].data);
    bind(DNNL_ARG_WEIGHTS, b_, call.in[1].data);
    bind(DNNL_ARG_DST, c_, call.out[0].data);
    bind(DNNL_ARG_SCRATCHPAD, variant.scratchpad, call.workspace.data);
    if (product_.bias) bind(DNNL_ARG_BIAS, bias_, call.in[2].data);
    check_dnnl(dnnl_primitive_execute(variant.primitive.get(), stream_.get(), count, args.data()),
               "running a product");
  }

 private:
  struct Variant {
    Primitive primitive;
    MemoryObject scratchpad;
  };

  MemoryObject memory(const dnnl_memory_desc_t& md) const {
    MemoryObject object;
    check_dnnl(dnnl_memory_create(object.put(), &md, engine_.get(), DNNL_MEMORY_NONE),
               "naming an operand");
    return object;
  }

  // The library shares the compiled code of equal primitives.
  Variant compile(bool accumulate) const {
    const Description description = describe_product(product_, accumulate, engine_);
    check(description.get() != nullptr, "oneDNN has no such product");
    Variant variant;
    check_dnnl(dnnl_primitive_create(variant.primitive.put(), description.get()),
               "compiling a product");
    variant.scratchpad = memory(scratchpad_of(description));
    return variant;
  }

  Product product_;
  Engine engine_ = make_engine();
  Stream stream_;
  MemoryObject a_, b_, bias_, c_;
  Variant write_, add_;
};

}  // namespace

bool dnnl_handles(const Product& product) {
  if (product.dtype != DType::bf16) return false;
  const ThreadScope scope(product.threads);
  return describe_product(product, can_accumulate(product), make_engine()).get() != nullptr;
}

int64_t dnnl_product_workspace_bytes(const Product& product) {
  const ThreadScope scope(product.threads);
  const Engine engine = make_engine();
  size_t bytes = 0;
  for (const bool accumulate : {false, can_accumulate(product)}) {
    const Description description = describe_product(product, accumulate, engine);
    bytes = std::max(bytes, dnnl_memory_desc_get_size(&scratchpad_of(description)));
  }
  return static_cast<int64_t>(bytes);
}

std::unique_ptr<Kernel> make_dnnl_product(const Product& product) {
  return std::make_unique<DnnlProduct>(product);
}

}  // namespace dstrain
