// Cases of the general ops that tests/golden/general_ops/general_ops.py writes: one op with operands, its result and its
// gradients in double precision by PyTorch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/ir/views/take_sorted.h"
#include "tests/ir/one_op.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {

using nlohmann::json;

inline double number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  const auto name = value.get<std::string>();
  if (name == "nan") return std::nan("");
  REQUIRE((name == "inf" || name == "-inf"));
  return name == "inf" ? HUGE_VAL : -HUGE_VAL;
}

inline std::vector<double> numbers_of(const json& values) {
  std::vector<double> numbers;
  for (const json& value : values) numbers.push_back(number_of(value));
  return numbers;
}

inline DType dtype_of(const json& name) {
  for (const DType dtype : kRunTypes)
    if (name.get<std::string>() == name_of(dtype)) return dtype;
  FAIL("no dtype " << name);
  return {};
}

inline Shape shape_of(const json& sizes) {
  Shape shape;
  for (const json& size : sizes) shape.append(size.get<int64_t>());
  return shape;
}

inline View view_of(const json& from) {
  View view{.offset = from.at("offset").get<int64_t>()};
  const auto read = [&](const char* name, View::Numbers& to) {
    if (!from.contains(name)) return;
    const auto numbers = from.at(name).get<std::vector<int64_t>>();
    std::ranges::copy(numbers, to.begin());
  };
  read("strides", view.strides);
  read("begin", view.begin);
  read("end", view.end);
  return view;
}

inline std::vector<View> views_of(const json& from) {
  std::vector<View> views;
  for (const json& view : from) views.push_back(view_of(view));
  return views;
}

inline Formula formula_of(const json& steps) {
  constexpr std::pair<const char*, Fn> kNames[] = {
      {"add", Fn::add},           {"subtract", Fn::subtract},
      {"multiply", Fn::multiply}, {"divide", Fn::divide},
      {"maximum", Fn::maximum},   {"minimum", Fn::minimum},
      {"less", Fn::less},         {"select", Fn::select},
      {"negate", Fn::negate},     {"absolute", Fn::absolute},
      {"tangent", Fn::tangent},   {"exponential", Fn::exponential},
      {"sigmoid", Fn::sigmoid},   {"logarithm", Fn::logarithm},
      {"sine", Fn::sine},         {"square_root", Fn::square_root},
      {"cosine", Fn::cosine},     {"error_function", Fn::error_function},
      {"rounded", Fn::rounded},   {"rounded_down", Fn::rounded_down},
      {"power", Fn::power},       {"remainder", Fn::remainder}};
  std::vector<Formula> made;
  for (const json& step : steps) {
    const auto name = step.at(0).get<std::string>();
    const auto of = [&](size_t i) { return made.at(step.at(i).get<size_t>()); };
    if (name == "input") {
      made.push_back(Formula::input(step.at(1).get<int>()));
    } else if (name == "constant") {
      made.emplace_back(step.at(1).get<float>());
    } else {
      const auto* const named =
          std::ranges::find_if(kNames, [&](auto k) { return k.first == name; });
      REQUIRE(named != std::end(kNames));
      const size_t operands = step.size() - 1;
      made.push_back(operands == 1   ? Formula::of(named->second, {of(1)})
                     : operands == 2 ? Formula::of(named->second, {of(1), of(2)})
                                     : Formula::of(named->second, {of(1), of(2), of(3)}));
    }
  }
  return made.back();
}

// The op of a case, without its operands.
inline Instruction instruction_of(const json& c) {
  const auto name = c.at("op").get<std::string>();
  if (name == "map")
    return {.op = OpKind::map,
            .attrs = MapAttrs{formula_of(c.at("formula")), shape_of(c.at("space")),
                              views_of(c.at("views"))}};
  if (name == "reduce") {
    const auto kind = c.at("kind").get<std::string>();
    return {.op = OpKind::reduce,
            .attrs = ReduceAttrs{kind == "sum"       ? Reduction::sum
                                 : kind == "maximum" ? Reduction::maximum
                                                     : Reduction::minimum,
                                 formula_of(c.at("formula")), shape_of(c.at("space")),
                                 c.at("kept").get<int>(), views_of(c.at("views"))}};
  }
  if (name == "contract") {
    const auto sizes = c.at("sizes").get<std::vector<int64_t>>();
    const std::vector<View> views = views_of(c.at("views"));
    return {.op = OpKind::contract,
            .attrs = ContractAttrs{.batch = shape_of(c.at("batch")),
                                   .summed = c.at("summed").get<int>(),
                                   .m = sizes.at(0),
                                   .n = sizes.at(1),
                                   .k = sizes.at(2),
                                   .a = views.at(0),
                                   .b = views.at(1)}};
  }
  if (name == "take" || name == "put") {
    TakeAttrs attrs{.space = shape_of(c.at("space")), .table = view_of(c.at("table"))};
    for (const json& of : c.at("indices"))
      attrs.indices.push_back({.view = view_of(of),
                               .stride = of.at("stride").get<int64_t>(),
                               .size = of.at("size").get<int64_t>()});
    return {.op = name == "take" ? OpKind::take : OpKind::put, .attrs = attrs};
  }
  if (name == "scan")
    return {.op = OpKind::scan,
            .attrs = ScanAttrs{{c.at("size").get<int64_t>(), c.at("apart").get<int64_t>()},
                               c.at("reversed").get<bool>(),
                               c.at("exclusive").get<bool>()}};
  if (name == "sort")
    return {.op = OpKind::sort,
            .attrs = SortAttrs{{c.at("size").get<int64_t>(), c.at("apart").get<int64_t>()},
                               c.at("kept").get<int64_t>(),
                               c.at("descending").get<bool>()}};
  REQUIRE((name == "window" || name == "window_grad"));
  WindowAttrs attrs{.planes = c.at("planes").get<int64_t>(),
                    .channels = c.at("channels").get<int64_t>(),
                    .outside = c.at("outside").get<float>()};
  for (size_t i = 0; i < attrs.dimensions.size(); ++i) {
    const auto d = c.at("dimensions").at(i).get<std::vector<int64_t>>();
    attrs.dimensions[i] = {.size = d.at(0),
                           .kernel = d.at(1),
                           .stride = d.at(2),
                           .padding = d.at(3),
                           .dilation = d.at(4),
                           .out = d.at(5)};
  }
  return {.op = name == "window" ? OpKind::window : OpKind::window_grad, .attrs = attrs};
}

// Runs a case on the device under test: the op, and what its rule makes of it for the gradients.
class JsonCase {
 public:
  explicit JsonCase(const json& c)
      : case_(c), dtype_(dtype_of(c.at("dtype"))), op_(instruction_of(c)), t_(dtype_) {
    // Each second operand is no parameter, so that its gradient has its dtype.
    for (const json& values : c.at("in")) {
      const Shape shape{static_cast<int64_t>(values.size())};
      const BufferId parameter = t_.parameter(shape);
      set(parameter, numbers_of(values));
      op_.reads.push_back(parameter);
      if (op_.reads.size() % 2 == 1) continue;
      op_.reads.back() = t_.run(shape);
      before_.push_back({.op = OpKind::map,
                         .attrs = MapAttrs{Formula::input(0), shape, {dense_view(shape)}},
                         .reads = {parameter},
                         .writes = {op_.reads.back()}});
    }
    if (c.contains("indices"))
      for (const json& of : c.at("indices")) {
        const std::vector<double> values = numbers_of(of.at("values"));
        const BufferId id = t_.buffer({static_cast<int64_t>(values.size())}, DType::i32);
        set(id, values);
        op_.reads.push_back(id);
      }
    result_ = t_.buffer({static_cast<int64_t>(c.at("expected").size())}, dtype_of(c.at("result")));
    op_.writes = {result_};
    if (op_.op == OpKind::sort) take_values();
  }

  // Requires that results and gradients are PyTorch's, within 2e-6 of the largest value and one rounding in 16 bits.
  void check() {
    std::vector<Instruction> forward = before_;
    forward.push_back(op_);
    for (const Instruction& op : forward) {
      REQUIRE(t_.refusal(op) == "");
      run(op);
    }
    if (order_ != kNone) CHECK(values_.at(order_).values() == numbers_of(case_.at("order")));
    require_near("result", result_, dtype_of(case_.at("result")), case_.at("expected"),
                 case_.at("scale"));
    if (!case_.contains("d")) return;
    Gradients g(t_.program);
    for (const Instruction& op : forward) g.mark(op);
    const BufferId d = g.like(result_);
    g.contribute(result_, d);
    for (size_t i = forward.size(); i-- > 0;)
      if (g.needs(forward[i].writes[0])) rule_of(forward[i].op).backward(forward[i], g);
    set(d, numbers_of(case_.at("d")));
    for (const Instruction& op : t_.program.instructions) {
      REQUIRE(t_.refusal(op) == "");
      run(op);
    }
    for (size_t i = 0; i < case_.at("in").size(); ++i) {
      const BufferId gradient = t_.program.parameters[i].gradient;
      INFO("operand " << i);
      if (gradient == kNone) {  // nothing depends on it
        for (const double value : numbers_of(case_.at("gradients").at(i))) REQUIRE(value == 0);
        continue;
      }
      require_near("gradient", gradient, dtype_, case_.at("gradients").at(i),
                   case_.at("gradient_scales").at(i));
    }
  }

 private:
  // Lets the sort give indices, by which a take reads the case's values.
  void take_values() {
    const auto attrs = attrs_as<SortAttrs>(op_.attrs);
    const BufferId x = op_.reads[0];
    const TakeAttrs take = take_sorted(attrs, t_.program.at(x).shape.elements());
    order_ = t_.buffer(take.space, DType::i32);
    op_.writes = {order_};
    before_.push_back(op_);
    op_ = {.op = OpKind::take, .attrs = take, .reads = {x, order_}, .writes = {result_}};
  }

  void set(BufferId id, const std::vector<double>& values) {
    const Buffer& buffer = t_.program.at(id);
    values_.insert_or_assign(id, Guarded(buffer.shape, buffer.dtype, values));
  }

  void run(const Instruction& op) {
    std::vector<const Guarded*> in;
    std::vector<Guarded*> out;
    for (const BufferId id : op.writes) {
      const Buffer& buffer = t_.program.at(id);
      out.push_back(&values_.try_emplace(id, buffer.shape, buffer.dtype).first->second);
    }
    for (const BufferId id : op.reads) in.push_back(&values_.at(id));
    run_kernel(test_device(),
               {.op = op.op,
                .attrs = op.attrs,
                .threads = 2,
                .accumulate = op.accumulate == Accumulate::always},
               in, out);
  }

  // `dtype`: what the values were rounded to.
  void require_near(const std::string& what, BufferId id, DType dtype, const json& expected,
                    double scale) {
    const std::vector<double> numbers = numbers_of(expected);
    const Tolerance rounding = rounding_of(dtype);
    const double relative = (dtype == DType::f32 ? 0 : rounding.relative) +
                            (what == "result" ? case_.at("relative").get<double>() : 0);
    std::vector<double> allowed;
    for (const double value : numbers)
      allowed.push_back(rounding.absolute + 2e-6 * scale + relative * std::abs(value));
    require_within(what, values_.at(id).values(), numbers, allowed);
  }

  const json& case_;
  DType dtype_;
  Instruction op_;
  BufferId result_ = kNone, order_ = kNone;  // order_: what a sort gives
  std::vector<Instruction> before_;
  OneOp t_;
  std::map<BufferId, Guarded> values_;
};

}  // namespace dstrain::parity
