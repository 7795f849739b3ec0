// The general ops, and those that windows of images have.
#include <algorithm>
#include <utility>

#include "benchmarks/cuda/case_list.h"

namespace dstrain::bench {

void add_general_cases(CaseList& list, int64_t seq, int64_t r, int64_t c, int64_t heads,
                       const std::string& at) {
  const auto add = [&list](const std::string& name, OpKind op, const OpAttrs& attrs,
                           std::vector<Operand> in, std::vector<Operand> out, double flops = 0) {
    list.add(name, op, attrs, std::move(in), std::move(out), flops);
  };
  const int64_t t = seq, b = r / t, d = c / heads, rows_of_table = 4096;
  const Operand x = run({r, c}), wide = run({r, 4 * c}), scores = run({b, heads, t, t});
  const Formula value = Formula::input(0);
  const Shape by_head{b, heads, t, d};
  const View heads_of{.strides = {t * c, d, c, 1}};
  add("map transposed" + at, OpKind::map, MapAttrs{value, by_head, {heads_of}}, {x}, {x});
  const Shape rows{r, 4 * c}, columns{4 * c, r};
  add("reduce rows" + at, OpKind::reduce,
      ReduceAttrs{.space = rows, .kept = 1, .views = {dense_view(rows)}}, {wide}, {f32({r})});
  add("reduce columns" + at, OpKind::reduce,
      ReduceAttrs{.space = columns, .kept = 1, .views = {{.strides = {1, 4 * c}}}}, {wide},
      {f32({4 * c})});
  const double flops = 2.0 * static_cast<double>(b * heads * t) * static_cast<double>(t * d);
  add("contract heads" + at, OpKind::contract,
      ContractAttrs{.batch = {b, heads}, .m = t, .n = t, .k = d, .a = heads_of, .b = heads_of},
      {x, x}, {scores}, flops);
  const TakeAttrs take{.space = {r, c},
                       .table = {.strides = {0, 1}},
                       .indices = {{{.strides = {1, 0}}, c, rows_of_table}}};
  const Operand table = run({rows_of_table, c}), named = ids(r, rows_of_table);
  add("take" + at, OpKind::take, take, {table, named}, {x});
  // Only the table's rows that the indices name are read.
  list.last().floor.bytes = 2 * bytes_of(x) + bytes_of(named);
  add("put" + at, OpKind::put, take, {x, named}, {f32({rows_of_table, c})});
  // Running sums along samples and along rows; the order of rows, and the 8 largest of 64 in turn.
  add("scan columns" + at, OpKind::scan, ScanAttrs{{t, c}}, {x}, {f32({r, c})});
  add("scan rows" + at, OpKind::scan, ScanAttrs{{c, 1}}, {x}, {f32({r, c})});
  add("sort rows" + at, OpKind::sort, SortAttrs{{c, 1}, c}, {x}, {ids(r * c, c)});
  add("sort 8 of 64" + at, OpKind::sort, SortAttrs{{64, 1}, 8, true}, {x}, {ids(r * c / 8, 64)});
  add("uniform" + at, OpKind::uniform, UniformAttrs{.samples = b, .inner = r / b * c}, {},
      {f32({r, c})});
  // A convolution's windows of 3 x 3 elements.
  WindowAttrs w{.planes = std::max<int64_t>(1, r * c / 1024 / 64), .channels = 64};
  w.dimensions[1] = w.dimensions[2] = {.size = 32, .kernel = 3, .padding = 1, .out = 32};
  const Operand image = run({w.planes, 1024, 64}), windows = run({w.planes, 1024, 9 * 64});
  add("window" + at, OpKind::window, w, {image}, {windows});
  add("window_grad" + at, OpKind::window_grad, w, {windows}, {image});
  add("max_pool" + at, OpKind::max_pool, w, {image}, {image});
  add("max_pool_grad" + at, OpKind::max_pool_grad, w, {image, image}, {image});
  ConvolutionAttrs convolution{w, 64};
  std::swap(convolution.windows.planes, convolution.windows.samples);
  const Operand weight = run({64, 64, 9});
  const double products = 2 * static_cast<double>(convolution.results()) * 64 * 9;
  add("convolution" + at, OpKind::convolution, convolution, {image, weight}, {image}, products);
  add("convolution_input_grad" + at, OpKind::convolution_input_grad, convolution, {image, weight},
      {image}, products);
  add("convolution_weight_grad" + at, OpKind::convolution_weight_grad, convolution, {image, image},
      {f32({64, 64, 9})}, products);
  const Operand loss{.spec = {Shape{1}, DType::f64}};
  add("sum_loss" + at, OpKind::sum_loss, {}, {f32({r})}, {loss, f32({r})});
}

}  // namespace dstrain::bench
