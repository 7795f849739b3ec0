#include "models/exported/graph/op_schemas.h"

#include <algorithm>
#include <catch2/catch.hpp>

namespace dstrain::exported {
namespace {

const SchemaArgument& argument_of(std::string_view target, std::string_view name) {
  const OpSchema* schema = find_schema(target);
  REQUIRE(schema != nullptr);
  const auto it = std::ranges::find(schema->arguments, name, &SchemaArgument::name);
  REQUIRE(it != schema->arguments.end());
  return *it;
}

template <class T>
T fallback_of(std::string_view target, std::string_view name) {
  const std::optional<Argument>& fallback = argument_of(target, name).fallback;
  REQUIRE(fallback.has_value());
  REQUIRE(std::holds_alternative<T>(*fallback));
  return std::get<T>(*fallback);
}

TEST_CASE("the table of schemas has every operator once, sorted") {
  CHECK(all_schemas().size() > 300);
  for (size_t i = 1; i < all_schemas().size(); ++i)
    CHECK(all_schemas()[i - 1].target < all_schemas()[i].target);
  CHECK(find_schema("aten.none.default") == nullptr);
}

TEST_CASE("a schema has the arguments of an operator in order, with their types and defaults") {
  const OpSchema* linear = find_schema("aten.linear.default");
  REQUIRE(linear != nullptr);
  REQUIRE(linear->arguments.size() == 3);
  CHECK(linear->arguments[0].name == "input");
  CHECK_FALSE(linear->arguments[1].fallback.has_value());
  CHECK(linear->arguments[2].is_optional);
  CHECK(fallback_of<std::monostate>("aten.linear.default", "bias") == std::monostate());

  using Sizes = std::vector<Size>;
  CHECK(fallback_of<Sizes>("aten.conv2d.default", "stride") == Sizes{1, 1});
  CHECK(fallback_of<Sizes>("aten.max_pool2d.default", "padding") == Sizes{0, 0});
  CHECK(fallback_of<Sizes>("aten.max_pool2d.default", "stride").empty());
  CHECK(fallback_of<Size>("aten.cross_entropy_loss.default", "ignore_index") == Size(-100));
  CHECK(fallback_of<double>("aten.cross_entropy_loss.default", "label_smoothing") == 0.0);
  CHECK(fallback_of<double>("aten.layer_norm.default", "eps") == 1e-5);
  CHECK(fallback_of<bool>("aten.topk.default", "largest"));
  CHECK(fallback_of<std::string>("aten.gelu.default", "approximate") == "none");
  CHECK(fallback_of<ScalarType>("aten.randint.low", "dtype") == ScalarType::i64);
  CHECK(fallback_of<Size>("aten.add.Tensor", "alpha") == Size(1));
  CHECK(argument_of("aten.index.Tensor", "indices").has_optional_items);
  CHECK(argument_of("aten.mean.dim", "dim").length == 1);
  CHECK(argument_of("aten.mean.dim", "dim").is_optional);
}

TEST_CASE("an argument is brought into the type that its schema states") {
  const SchemaArgument real = argument_of("aten.layer_norm.default", "eps"),
                       stride = argument_of("aten.conv2d.default", "stride"),
                       other = argument_of("aten.add.Tensor", "other"),
                       indices = argument_of("aten.index.Tensor", "indices"),
                       tensors = argument_of("aten.cat.default", "tensors");
  CHECK(as_stated(Size(2), real) == Argument(2.0));
  CHECK(as_stated(Size(2), stride) == Argument(std::vector<Size>{2, 2}));
  CHECK(as_stated(std::vector<Size>{3}, stride) == Argument(std::vector<Size>{3, 3}));
  CHECK(as_stated(Size(2), other) == Argument(Size(2)));
  CHECK(as_stated(std::vector<Size>(), tensors) == Argument(std::vector<TensorRef>()));
  const Argument some = std::vector<TensorRef>{{1}, {}};
  CHECK(as_stated(some, indices) == some);
  CHECK(as_stated(some, tensors) == std::nullopt);
  CHECK(as_stated(std::string("a"), other) == std::nullopt);
  CHECK(as_stated(Argument(), other) == std::nullopt);
  CHECK(as_stated(2.5, stride) == std::nullopt);
  CHECK(as_stated(TensorRef{1}, real) == std::nullopt);
}

}  // namespace
}  // namespace dstrain::exported
