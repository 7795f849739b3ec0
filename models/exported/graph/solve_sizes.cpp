#include "models/exported/graph/solve_sizes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain::exported {
namespace {

// Returns the only symbol of a size that has no value yet, or nothing.
std::optional<std::string> only_unknown(const Size& size, const SymbolValues& known) {
  std::set<std::string> names;
  size.add_symbols(names);
  std::erase_if(names, [&](const std::string& name) { return known.contains(name); });
  return names.size() == 1 ? std::optional(*names.begin()) : std::nullopt;
}

// Returns the value of `symbol` with which a size that grows with it in a straight line is `wanted`.
std::optional<int64_t> solve_line(const Size& size, const std::string& symbol, int64_t wanted,
                                  const SymbolValues& known) {
  SymbolValues with = known;
  const auto value_at = [&](int64_t x) {
    with[symbol] = x;
    return size.value_with(with);
  };
  const std::optional<int64_t> at0 = value_at(0), at1 = value_at(1);
  int64_t slope = 0, rise = 0;
  if (!at0 || !at1 || __builtin_sub_overflow(*at1, *at0, &slope) ||
      __builtin_sub_overflow(wanted, *at0, &rise) || slope <= 0 || rise < 0 || rise % slope != 0)
    return std::nullopt;
  const int64_t x = rise / slope;
  return value_at(x) == wanted ? std::optional(x) : std::nullopt;
}

[[noreturn]] void refuse_input(const InputSizes& input, const TensorInfo& info) {
  fail_user(
      "the input \"{}\" has sizes ({}), and the model was exported with {}: give it those, or "
      "export it "
      "with dynamic_shapes for the dimensions that differ",
      shown_text(input.name), fmt::join(input.sizes, ", "), to_string(info.sizes));
}

void check_ranges(const Graph& graph, const SymbolValues& values) {
  for (const auto& [symbol, value] : values) {
    const auto it = graph.symbols.find(symbol);
    if (it == graph.symbols.end()) continue;
    const SymbolRange& range = it->second;
    const bool is_low = value < range.lowest && !(value == 1 && range.lowest == 2);
    if (is_low || (range.highest && value > *range.highest))
      fail_user(
          "the size {} is {}, and the model was exported for {} to {}: export it with a wider "
          "range",
          symbol, value, range.lowest,
          range.highest ? fmt::format("{}", *range.highest) : "any number");
  }
}

// Gives sizes of one graph their values.
class SizeSetter {
 public:
  explicit SizeSetter(const SymbolValues& symbols) : symbols_(symbols) {}

  void set(TensorInfo& info) const {
    for (Size& size : info.sizes) set_at_least_0(size, info.name);
    for (Size& stride : info.strides) set_at_least_0(stride, info.name);
    set_at_least_0(info.offset, info.name);
    int64_t bytes = size_of(info.type);
    for (const Size& size : info.sizes)
      if (__builtin_mul_overflow(bytes, std::max<int64_t>(size.value(), 1), &bytes))
        fail_user("the sizes {} of the tensor \"{}\" overflow", to_string(info.sizes), info.name);
  }

  void set(Node& node) const {
    for (auto& [name, argument] : node.arguments) {
      if (auto* size = std::get_if<Size>(&argument)) set(*size, describe(node));
      if (auto* sizes = std::get_if<std::vector<Size>>(&argument))
        for (Size& size : *sizes) set(size, describe(node));
    }
  }

 private:
  void set(Size& size, const std::string& where) const {
    if (size.is_fixed()) return;
    const std::optional<int64_t> value = size.value_with(symbols_);
    if (value) {
      size = *value;
      return;
    }
    std::set<std::string> names;
    size.add_symbols(names);
    for (const std::string& name : names)
      if (!symbols_.contains(name))
        fail_user(
            "{} has the size {}, of which {} depends on the data: models with such sizes cannot be "
            "trained",
            where, to_string(size), name);
    fail_user("{} has the size {}, which overflows", where, to_string(size));
  }

  void set_at_least_0(Size& size, const std::string& tensor) const {
    const Size stated = size;
    set(size, fmt::format("the tensor \"{}\"", tensor));
    if (size.value() < 0)
      fail_user("the tensor \"{}\" has the size or stride {}, which is {}", tensor,
                to_string(stated), size.value());
  }

  const SymbolValues& symbols_;
};

}  // namespace

SymbolValues solve_symbols(const Graph& graph, const std::vector<InputSizes>& inputs) {
  struct Equation {
    const InputSizes* input;
    const TensorInfo* info;
    size_t dimension;
  };
  std::vector<Equation> open;
  for (const GraphInput& wanted : graph.inputs) {
    if (wanted.kind != InputKind::user) continue;
    const auto input = std::ranges::find(inputs, wanted.name, &InputSizes::name);
    check(input != inputs.end(), "the input \"{}\" has no sizes", wanted.name);
    const TensorInfo& info = graph.tensor(wanted.tensor);
    if (input->sizes.size() != info.sizes.size()) refuse_input(*input, info);
    for (size_t i = 0; i < info.sizes.size(); ++i) open.push_back({&*input, &info, i});
  }
  SymbolValues values;
  // Every turn settles what is known, and finds at least one symbol or ends.
  for (bool found = true; found;) {
    found = false;
    std::erase_if(open, [&](const Equation& e) {
      const Size& size = e.info->sizes[e.dimension];
      const int64_t wanted = e.input->sizes[e.dimension];
      if (const std::optional<int64_t> value = size.value_with(values)) {
        if (*value != wanted) refuse_input(*e.input, *e.info);
        return true;
      }
      const std::optional<std::string> symbol = only_unknown(size, values);
      if (!symbol) return false;
      const std::optional<int64_t> value = solve_line(size, *symbol, wanted, values);
      if (!value) refuse_input(*e.input, *e.info);
      values[*symbol] = *value;
      return found = true;
    });
  }
  if (!open.empty())
    fail_user(
        "the size {} of the input \"{}\" cannot be told from the sizes of the inputs: export the "
        "model "
        "with one symbol a dimension",
        to_string(open[0].info->sizes[open[0].dimension]), shown_text(open[0].input->name));
  check_ranges(graph, values);
  return values;
}

Graph with_sizes(Graph graph, const SymbolValues& symbols) {
  const SizeSetter setter(symbols);
  for (TensorInfo& info : graph.tensors) setter.set(info);
  for (Node& node : graph.nodes) setter.set(node);
  return graph;
}

}  // namespace dstrain::exported
