#include "runtime/ir/product.h"

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Catch::Contains;

struct Specs {
  std::vector<TensorSpec> in;
  OpAttrs attrs;
  Product product(OpKind op, int threads = 2) const {
    return product_of({op, attrs, in, {}, threads});
  }
};

TensorSpec bf16_matrix(int64_t rows, int64_t columns) {
  return {{rows, columns}, DType::bf16};
}

TEST_CASE("a product reads its sizes from the operands of its op") {
  const Specs forward{{bf16_matrix(6, 5), bf16_matrix(7, 5), {{7}, DType::bf16}, {}}, {}};
  const Product y = forward.product(OpKind::linear);
  CHECK((y.rows == 6 && y.in_features == 5 && y.out_features == 7));
  CHECK((y.m() == 6 && y.n() == 7 && y.k() == 5));
  CHECK((y.bias && !y.relu && !y.packed && y.dtype == DType::bf16 && y.threads == 2));

  const Specs input{{bf16_matrix(6, 7), bf16_matrix(7, 5), {{640}, DType::u8}}, {}};
  const Product d_x = input.product(OpKind::linear_input_grad);
  CHECK((d_x.m() == 6 && d_x.n() == 5 && d_x.k() == 7 && d_x.packed));

  const Specs weight{{bf16_matrix(6, 7), bf16_matrix(6, 5)}, {}};
  const Product d_w = weight.product(OpKind::linear_weight_grad);
  CHECK((d_w.m() == 7 && d_w.n() == 5 && d_w.k() == 6));
}

TEST_CASE("leading dimensions of activations are rows") {
  const Specs s{{{{2, 3, 5}, DType::f32}, {{7, 5}, DType::f32}}, {}};
  CHECK(s.product(OpKind::linear).rows == 6);
}

TEST_CASE("a pack belongs to the product that its attributes name") {
  const TensorSpec weight = bf16_matrix(7, 5);
  const Product y =
      product_of_pack({OpKind::pack_weight, PackAttrs{6, false}, {&weight, 1}, {}, 1});
  CHECK((y.op == OpKind::linear && y.n() == 7 && y.k() == 5 && y.m() == 6));
  const Product d_x =
      product_of_pack({OpKind::pack_weight, PackAttrs{6, true}, {&weight, 1}, {}, 1});
  CHECK((d_x.op == OpKind::linear_input_grad && d_x.n() == 5 && d_x.k() == 7));
}

TEST_CASE("a product with gelu knows whether gelu's operand is written or read") {
  const ActivationAttrs gelu{Activation::gelu};
  const std::vector<TensorSpec> in{bf16_matrix(6, 5), bf16_matrix(7, 5)};
  const std::vector<TensorSpec> out{bf16_matrix(6, 7), bf16_matrix(6, 7)};
  const Product kept = product_of({OpKind::linear, gelu, in, out, 1});
  CHECK((kept.gelu && kept.pre && !kept.relu));
  const Product forgotten = product_of({OpKind::linear, gelu, in, std::span(out).first(1), 1});
  CHECK((forgotten.gelu && !forgotten.pre));
  const Specs slope{{bf16_matrix(6, 7), bf16_matrix(7, 5), {}, bf16_matrix(6, 5)}, gelu};
  const Product d_x = slope.product(OpKind::linear_input_grad);
  CHECK((d_x.gelu && d_x.pre && !d_x.packed));
}

TEST_CASE("a product with a residual is one without an activation") {
  const std::vector<TensorSpec> in{bf16_matrix(6, 5), bf16_matrix(7, 5), {}, {}, bf16_matrix(6, 7)};
  const std::vector<TensorSpec> out{bf16_matrix(6, 7)};
  CHECK(product_of({OpKind::linear, {}, in, out, 1}).residual);
  CHECK_FALSE(product_of({OpKind::linear, {}, std::span(in).first(2), out, 1}).residual);
  CHECK_THROWS_WITH(product_of({OpKind::linear, ActivationAttrs{Activation::relu}, in, out, 1}),
                    Contains("a residual and an activation"));
  const std::vector<TensorSpec> narrow{
      bf16_matrix(6, 5), bf16_matrix(7, 5), {}, {}, bf16_matrix(6, 5)};
  CHECK_THROWS_WITH(product_of({OpKind::linear, {}, narrow, out, 1}),
                    Contains("the residual is bf16 (6, 5), expected (6, 7)"));
}

TEST_CASE("operands that do not fit are refused by name") {
  const Specs columns{{bf16_matrix(6, 5), bf16_matrix(7, 4)}, {}};
  CHECK_THROWS_WITH(columns.product(OpKind::linear),
                    Contains("(6, 5)") && Contains("(7, 4)") && Contains("equal columns"));
  CHECK_THROWS_WITH(columns.product(OpKind::linear_input_grad), Contains("equal out features"));
  CHECK_THROWS_WITH(columns.product(OpKind::linear_weight_grad), Contains("equal rows"));
  const Specs dtypes{{bf16_matrix(6, 5), {{7, 5}, DType::f32}}, {}};
  CHECK_THROWS_WITH(dtypes.product(OpKind::linear), Contains("one dtype"));
  const Specs integers{{{{6, 5}, DType::i32}, {{7, 5}, DType::i32}}, {}};
  CHECK_THROWS_WITH(integers.product(OpKind::linear), Contains("no kernel for i32"));
  const Specs absent{{bf16_matrix(6, 5), {}}, {}};
  CHECK_THROWS_WITH(absent.product(OpKind::linear), Contains("operand 1 is no matrix"));
  const Specs fine{{bf16_matrix(6, 5), bf16_matrix(7, 5)}, {}};
  CHECK_THROWS_WITH(fine.product(OpKind::embed), Contains("embed is no product"));
  CHECK_THROWS_WITH(fine.product(OpKind::linear, 0), Contains("0 threads"));
  const ActivationAttrs gelu{Activation::gelu};
  const Specs slope{{bf16_matrix(6, 7), bf16_matrix(7, 5), {}, bf16_matrix(6, 7)}, gelu};
  CHECK_THROWS_WITH(slope.product(OpKind::linear_input_grad),
                    Contains("what gelu sees is bf16 (6, 7), expected (6, 5)"));
  const Specs none{{bf16_matrix(6, 7), bf16_matrix(7, 5)}, gelu};
  CHECK_THROWS_WITH(none.product(OpKind::linear_input_grad), Contains("what gelu saw is absent"));
  const Specs huge{{bf16_matrix(int64_t{1} << 31, 5), bf16_matrix(7, 5)}, {}};
  CHECK_THROWS_AS(huge.product(OpKind::linear), InternalError);
}

}  // namespace
}  // namespace dstrain
