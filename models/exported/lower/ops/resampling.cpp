// Operators that compute an image, a signal or a volume of another size, and those that add elements around one.
#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "models/exported/lower/operators.h"
#include "models/exported/lower/ops/lookups.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

// Elements of the old dimension that each of the new one is made of: the same number for each, with weights.
struct Samples {
  std::vector<std::vector<int32_t>>
      places;  // of the first for each new element, of the second, ...
  std::vector<std::vector<float>> weights;
};

// A dimension of so many elements that becomes one of another number. `factor`: what an operator says of their quotient, or 0.
struct Resized {
  int64_t from = 1, to = 1;
  double factor = 0;

  // Returns how far apart, in old elements, new ones are.
  double step(bool align_corners) const {
    if (align_corners)
      return to > 1 ? static_cast<double>(from - 1) / static_cast<double>(to - 1) : 0;
    return factor > 0 ? 1 / factor : static_cast<double>(from) / static_cast<double>(to);
  }
  int32_t clamped(int64_t place) const {
    return static_cast<int32_t>(std::clamp<int64_t>(place, 0, from - 1));
  }
};

Samples nearest(const Resized& r, double shift) {
  Samples s{{{}}, {}};
  const auto step = static_cast<float>(r.step(false));  // PyTorch rounds it
  for (int64_t i = 0; i < r.to; ++i)
    s.places[0].push_back(r.clamped(static_cast<int64_t>(
        std::floor((static_cast<float>(i) + static_cast<float>(shift)) * step))));
  return s;
}

Samples nearest_before(const Resized& r, bool) {
  // PyTorch does not ask for the stated factor then.
  if (r.to == 2 * r.from) return nearest({r.from, r.to}, 0);
  return nearest(r, 0);
}
Samples nearest_centre(const Resized& r, bool) {
  return nearest(r, 0.5);
}

// Returns the place among old elements of the new element i.
double old_place(const Resized& r, int64_t i, bool align_corners) {
  const double step = r.step(align_corners), x = static_cast<double>(i);
  return align_corners ? x * step : (x + 0.5) * step - 0.5;
}

Samples linear(const Resized& r, bool align_corners) {
  Samples s{{{}, {}}, {{}, {}}};
  for (int64_t i = 0; i < r.to; ++i) {
    const double place = std::max(0.0, old_place(r, i, align_corners));
    const auto before = static_cast<int64_t>(place);
    const auto share = static_cast<float>(place - static_cast<double>(before));
    s.places[0].push_back(r.clamped(before));
    s.places[1].push_back(r.clamped(before + 1));
    s.weights[0].push_back(1 - share);
    s.weights[1].push_back(share);
  }
  return s;
}

// Keys' cubic kernel with the parameter that PyTorch has.
Samples cubic(const Resized& r, bool align_corners) {
  constexpr double a = -0.75;
  const auto near = [](double x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  Samples s{{{}, {}, {}, {}}, {{}, {}, {}, {}}};
  for (int64_t i = 0; i < r.to; ++i) {
    const double place = old_place(r, i, align_corners), floor = std::floor(place),
                 share = place - floor;
    const double weights[] = {far(share + 1), near(share), near(1 - share), far(2 - share)};
    for (size_t k = 0; k < 4; ++k) {
      s.places[k].push_back(r.clamped(static_cast<int64_t>(floor) + static_cast<int64_t>(k) - 1));
      s.weights[k].push_back(static_cast<float>(weights[k]));
    }
  }
  return s;
}

using Method = Samples (*)(const Resized&, bool align_corners);

// Returns x with a dimension of another size.
Value resized(Lowering& l, const Node& node, const Value& x, int dimension,
              const Samples& samples) {
  const auto name = [dimension](const char* what, size_t k) {
    return fmt::format("{}_{}_{}", what, dimension, k);
  };
  Value sum;
  for (size_t k = 0; k < samples.places.size(); ++k) {
    Value part = along(l, node, name("places", k), x, dimension, samples.places[k]);
    if (samples.weights.empty()) return part;
    Value weights = l.list(node, name("weights", k),
                           {static_cast<int64_t>(samples.weights[k].size())}, samples.weights[k]);
    for (int d = dimension + 1; d < x.shape.rank; ++d)
      weights = unsqueeze(weights, weights.shape.rank);
    part = l.pointwise(
        node, [](Formulas f) { return f[0] * f[1]; }, {part, weights}, x.type);
    sum = k == 0 ? part
                 : l.pointwise(
                       node, [](Formulas f) { return f[0] + f[1]; }, {sum, part}, x.type);
  }
  return l.computed(sum);
}

// Returns x with `times` equal elements for each of a dimension.
Value repeated(Lowering& l, const Value& x, int dimension, int64_t times) {
  Shape apart, whole_shape = x.shape;
  const Value before = unsqueeze(x, dimension + 1);
  for (int d = 0; d < before.shape.rank; ++d)
    apart.append(d == dimension + 1 ? times : before.shape[d]);
  whole_shape.dims[static_cast<size_t>(dimension)] *= times;
  return l.reshaped(expand(before, apart), whole_shape);
}

// Returns whether each old element is that of as many neighbouring new ones.
bool repeats(const Samples& samples, const Resized& r) {
  if (!samples.weights.empty() || r.to % r.from != 0) return false;
  for (int64_t i = 0; i < r.to; ++i)
    if (samples.places[0][static_cast<size_t>(i)] != i / (r.to / r.from)) return false;
  return true;
}

// x (samples, channels, sizes...) of other sizes, by one dimension after the other.
template <Method kMethod>
void lower_resize(Lowering& l, const Node& node) {
  Value x = l.operand(node, node.find("input") ? "input" : "self");
  const Shape result = l.shape_of(node.outputs[0]);
  const bool align = node.find("align_corners") && node.flag("align_corners");
  const auto factor_of = [&](int dimension) -> double {
    if (node.find("scale_factors"))
      return node.has("scale_factors") ? std::get<std::vector<double>>(*node.find("scale_factors"))
                                             .at(static_cast<size_t>(dimension - 2))
                                       : 0;
    const int from_last = result.rank - 1 - dimension;
    for (const std::string_view name :
         {from_last == 0 ? (result.rank == 3 ? "scales" : "scales_w")
                         : (from_last == 1 ? "scales_h" : "scales_d")})
      if (node.find(name) && node.has(name)) return node.real(name);
    return 0;
  };
  for (int d = 2; d < result.rank; ++d) {
    const Resized r{x.shape[d], result[d], factor_of(d)};
    if (r.from == r.to && r.step(align) == 1) continue;
    const Samples samples = kMethod(r, align);
    x = repeats(samples, r) ? repeated(l, x, d, r.to / r.from) : resized(l, node, x, d, samples);
  }
  l.set(node, x);
}

// Returns the place of an element that is beside a dimension of `size`.
int64_t mirrored(int64_t place, int64_t size) {
  if (place < 0) place = -place;
  return place < size ? place : 2 * (size - 1) - place;
}
int64_t nearest_inside(int64_t place, int64_t size) {
  return std::clamp<int64_t>(place, 0, size - 1);
}
int64_t around(int64_t place, int64_t size) {
  return (place % size + size) % size;
}

}  // namespace

bool pad_with_own(Lowering& l, const Node& node, std::string_view mode) {
  const auto rule = mode == "reflect"     ? mirrored
                    : mode == "replicate" ? nearest_inside
                    : mode == "circular"  ? around
                                          : nullptr;
  if (!rule) return false;
  Value x = l.operand(node, "self");
  const std::vector<int64_t> pad = node.wholes(node.find("pad") ? "pad" : "padding");
  for (size_t i = 0; 2 * i < pad.size(); ++i) {
    const int d = x.shape.rank - 1 - static_cast<int>(i);
    const int64_t before = pad[2 * i], size = x.shape[d], after = pad[2 * i + 1];
    if (before == 0 && after == 0) continue;
    std::vector<int32_t> places;
    for (int64_t place = -before; place < size + after; ++place)
      places.push_back(static_cast<int32_t>(rule(place, size)));
    x = along(l, node, fmt::format("places_{}", d), x, d, places);
  }
  l.set(node, x);
  return true;
}

namespace {

constexpr LoweredOp kResampling[] = {
    {"aten._upsample_nearest_exact1d.vec", lower_resize<nearest_centre>},
    {"aten._upsample_nearest_exact2d.vec", lower_resize<nearest_centre>},
    {"aten._upsample_nearest_exact3d.vec", lower_resize<nearest_centre>},
    {"aten.reflection_pad1d.default",
     [](Lowering& l, const Node& node) { pad_with_own(l, node, "reflect"); }},
    {"aten.reflection_pad2d.default",
     [](Lowering& l, const Node& node) { pad_with_own(l, node, "reflect"); }},
    {"aten.replication_pad1d.default",
     [](Lowering& l, const Node& node) { pad_with_own(l, node, "replicate"); }},
    {"aten.replication_pad2d.default",
     [](Lowering& l, const Node& node) { pad_with_own(l, node, "replicate"); }},
    {"aten.upsample_bicubic2d.default", lower_resize<cubic>},
    {"aten.upsample_bicubic2d.vec", lower_resize<cubic>},
    {"aten.upsample_bilinear2d.default", lower_resize<linear>},
    {"aten.upsample_bilinear2d.vec", lower_resize<linear>},
    {"aten.upsample_linear1d.vec", lower_resize<linear>},
    {"aten.upsample_nearest1d.vec", lower_resize<nearest_before>},
    {"aten.upsample_nearest2d.default", lower_resize<nearest_before>},
    {"aten.upsample_nearest2d.vec", lower_resize<nearest_before>},
    {"aten.upsample_nearest3d.vec", lower_resize<nearest_before>},
    {"aten.upsample_trilinear3d.vec", lower_resize<linear>},
};

}  // namespace

std::span<const LoweredOp> resampling_operators() {
  return kResampling;
}

}  // namespace dstrain::exported
