#include "benchmarks/general/cases.h"

#include "runtime/ir/formula/formula.h"

namespace dstrain::bench {
namespace {

constexpr int64_t kRows = 4096, kColumns = 2048;

View strided(std::initializer_list<int64_t> strides, int64_t offset = 0) {
  View view{.offset = offset};
  std::copy(strides.begin(), strides.end(), view.strides.begin());
  return view;
}

// The cases of one dtype.
class Cases {
 public:
  explicit Cases(DType dtype) : dtype_(dtype) {}

  std::vector<GeneralCase> all() {
    maps();
    reductions();
    contractions();
    tables();
    lines();
    draws();
    windows();
    return std::move(cases_);
  }

 private:
  TensorSpec values(const Shape& shape) const { return {shape, dtype_}; }
  TensorSpec exact(const Shape& shape) const { return {shape, DType::f32}; }

  void add_map(const std::string& name, const Formula& formula, const Shape& space,
               std::vector<View> views, std::vector<TensorSpec> in) {
    cases_.push_back({.name = name,
                      .op = OpKind::map,
                      .attrs = MapAttrs{formula, space, std::move(views)},
                      .in = std::move(in),
                      .out = {values(space)}});
  }

  void add_reduce(const std::string& name, Reduction kind, const Formula& formula,
                  const Shape& space, int kept, std::vector<View> views,
                  std::vector<TensorSpec> in) {
    Shape result = space;
    result.rank = kept;
    if (kept == 0) result = {1};
    cases_.push_back({.name = name,
                      .op = OpKind::reduce,
                      .attrs = ReduceAttrs{kind, formula, space, kept, std::move(views)},
                      .in = std::move(in),
                      .out = {exact(result)}});
  }

  void maps() {
    const Formula x = Formula::input(0), y = Formula::input(1), z = Formula::input(2),
                  u = Formula::input(3), v = Formula::input(4);
    const Shape plane{kRows, kColumns};
    const View dense = dense_view(plane), by_row = strided({1, 0}), by_column = strided({0, 1});
    const TensorSpec whole = values(plane), columns = values({kColumns}), rows = exact({kRows});
    add_map("x + y", x + y, plane, {dense, dense}, {whole, whole});
    add_map("max(x, 0)", relu(x), plane, {dense}, {whole});
    add_map("x + row", x + y, plane, {dense, by_column}, {whole, columns});
    add_map("(x - mean) * rate * w + b", (x - y) * z * u + v, plane,
            {dense, by_row, by_row, by_column, by_column}, {whole, rows, rows, columns, columns});
    add_map("exp(x - max) / sum", exponential(x - y) / z, plane, {dense, by_row, by_row},
            {whole, rows, rows});
    add_map("gelu(x)", gelu(x), plane, {dense}, {whole});
    add_map("transposed", x, plane, {strided({1, kRows})}, {whole});
    add_map("x + transposed", x + y, plane, {dense, strided({1, kRows})}, {whole, whole});
    add_map("heads (64, 128, 16, 64) by head", x, {64, 16, 128, 64},
            {strided({128 * 16 * 64, 64, 16 * 64, 1})}, {whole});
    add_map("columns 0 to 1023 of rows", x, {kRows, kColumns / 2}, {strided({kColumns, 1})},
            {whole});
    cases_.back().unread = whole.shape.elements() / 2 * size_of(dtype_);
    add_map("every second column", x, {kRows, kColumns / 2}, {strided({kColumns, 2})}, {whole});
    View padded = strided({1024, 32, 1}, -33);
    padded.begin = {0, 1, 1};
    padded.end = {View::kAll, 33, 33};
    add_map("planes of 32 x 32 padded to 34 x 34", x, {8192, 34, 34}, {padded},
            {values({8192, 32, 32})});
    // Two halves side by side: a concatenation.
    View left = strided({1024, 1}), right = strided({1024, 1}, -1024);
    left.end[1] = 1024;
    right.begin[1] = 1024;
    add_map("two operands side by side", select(Formula::inside(0), x, y), plane, {left, right},
            {values({kRows, 1024}), values({kRows, 1024})});
  }

  void reductions() {
    const Formula x = Formula::input(0), y = Formula::input(1);
    const Shape plane{kRows, kColumns};
    const View dense = dense_view(plane), by_row = strided({1, 0}), across = strided({1, kColumns});
    const TensorSpec whole = values(plane), rows = exact({kRows});
    using enum Reduction;
    add_reduce("row sum", sum, x, plane, 1, {dense}, {whole});
    add_reduce("row max", maximum, x, plane, 1, {dense}, {whole});
    add_reduce("row sum of exp(x - max)", sum, exponential(x - y), plane, 1, {dense, by_row},
               {whole, rows});
    add_reduce("row sum of (x - mean)^2", sum, (x - y) * (x - y), plane, 1, {dense, by_row},
               {whole, rows});
    add_reduce("row sum of x * y", sum, x * y, plane, 1, {dense, dense}, {whole, whole});
    add_reduce("sum of all", sum, x, plane, 0, {dense}, {whole});
    add_reduce("column sum", sum, x, {kColumns, kRows}, 1, {across}, {whole});
    add_reduce("column max", maximum, x, {kColumns, kRows}, 1, {across}, {whole});
    add_reduce("column sum of x * y", sum, x * y, {kColumns, kRows}, 1, {across, across},
               {whole, whole});
    add_reduce("sum over the middle (64, 128, 1024)", sum, x, {64, 1024, 128}, 2,
               {strided({131072, 1, 1024})}, {whole});
    add_reduce("rows of 64", sum, x, {131072, 64}, 1, {strided({64, 1})}, {whole});
    add_reduce("rows of 9", maximum, x, {932064, 9}, 1, {strided({9, 1})}, {values({932064, 9})});
    add_reduce("row sum of x * transposed", sum, x * y, {2048, 2048}, 1,
               {strided({2048, 1}), strided({1, 2048})},
               {values({2048, 2048}), values({2048, 2048})});
  }

  // A batch of products of (m, k) and (n, k); `a` and `b`: strides of the views.
  void add_contract(const std::string& name, int64_t batch, int64_t m, int64_t n, int64_t k, View a,
                    View b) {
    cases_.push_back(
        {.name = name,
         .op = OpKind::contract,
         .attrs = ContractAttrs{.batch = {batch}, .m = m, .n = n, .k = k, .a = a, .b = b},
         .in = {values({batch, m, k}), values({batch, n, k})},
         .out = {values({batch, m, n})},
         .product = ProductSizes{batch * m, k, n}});
  }

  void contractions() {
    const auto batch_of = [&](const std::string& name, int64_t batch, int64_t m, int64_t n,
                              int64_t k) {
      add_contract(name, batch, m, n, k, strided({m * k, k, 1}), strided({n * k, k, 1}));
    };
    batch_of("256 of 64 x 64 x 64", 256, 64, 64, 64);
    add_contract("the same, b as (k, n)", 256, 64, 64, 64, strided({4096, 64, 1}),
                 strided({4096, 1, 64}));
    add_contract("the same, a as (k, m)", 256, 64, 64, 64, strided({4096, 1, 64}),
                 strided({4096, 64, 1}));
    add_contract("the same, both transposed", 256, 64, 64, 64, strided({4096, 1, 64}),
                 strided({4096, 1, 64}));
    batch_of("96 of 256 x 256 x 64", 96, 256, 256, 64);
    add_contract("96 of 256 x 64 x 256, b as (k, n)", 96, 256, 64, 256, strided({65536, 256, 1}),
                 strided({16384, 1, 64}));
    batch_of("64 of 100 x 77 x 131", 64, 100, 77, 131);
    batch_of("4096 of 8 x 8 x 8", 4096, 8, 8, 8);
    batch_of("4 of 512 x 512 x 512", 4, 512, 512, 512);
    // Four heads side by side in rows of 256 channels.
    cases_.push_back({.name = "heads of 64 channels, 64 of 256 x 256 x 64",
                      .op = OpKind::contract,
                      .attrs = ContractAttrs{.batch = {16, 4},
                                             .m = 256,
                                             .n = 256,
                                             .k = 64,
                                             .a = strided({65536, 64, 256, 1}),
                                             .b = strided({65536, 64, 256, 1})},
                      .in = {values({16, 256, 4, 64}), values({16, 256, 4, 64})},
                      .out = {values({16, 4, 256, 256})},
                      .product = ProductSizes{64 * 256, 64, 256}});
  }

  void tables() {
    const TensorSpec ids{{kRows}, DType::i32}, table = values({8192, 1024}),
                                               rows = values({kRows, 1024});
    const TakeAttrs of_rows{
        {kRows, 1024}, strided({0, 1}), {{.view = strided({1, 0}), .stride = 1024, .size = 8192}}};
    const auto add = [&](const std::string& name, OpKind op, const TakeAttrs& attrs,
                         const TensorSpec& in, const TensorSpec& indices, const TensorSpec& out,
                         int64_t most) {
      cases_.push_back({.name = name,
                        .op = op,
                        .attrs = attrs,
                        .in = {in, indices},
                        .out = {out},
                        .indices = most});
    };
    add("rows of a table", OpKind::take, of_rows, table, ids, rows, 8192);
    cases_.back().unread = 4096 * 1024 * size_of(dtype_);
    add("rows of a table", OpKind::put, of_rows, rows, ids, exact({8192, 1024}), 8192);
    const Shape plane{kRows, 1024};
    const TakeAttrs of_elements{
        plane, strided({1024, 0}), {{.view = dense_view(plane), .stride = 1, .size = 1024}}};
    const TensorSpec whole = values(plane), all{plane, DType::i32};
    add("elements of rows", OpKind::take, of_elements, whole, all, whole, 1024);
    add("elements of rows", OpKind::put, of_elements, whole, all, exact(plane), 1024);
    const TakeAttrs one_each{
        {1 << 22}, strided({2}), {{.view = strided({1}), .stride = 1, .size = 2}}};
    add("one of each pair", OpKind::take, one_each, values({1 << 23}), {{1 << 22}, DType::i32},
        values({1 << 22}), 2);
  }

  // Numbers that are drawn.
  void draws() {
    const Shape plane{kRows, 1024};
    cases_.push_back({.name = "draws",
                      .op = OpKind::uniform,
                      .attrs = UniformAttrs{.samples = 16, .inner = kRows / 16 * 1024},
                      .in = {},
                      .out = {exact(plane)}});
  }

  // Running sums and orders of rows of a matrix, and of its columns.
  void lines() {
    const Shape plane{kRows, 1024};
    const TensorSpec x = values(plane);
    const Lines rows{1024, 1}, columns{kRows, 1024};
    const auto add = [&](const std::string& name, OpKind op, const OpAttrs& attrs,
                         const TensorSpec& out) {
      cases_.push_back(
          {.name = name, .op = op, .attrs = attrs, .in = {x}, .out = {out}, .indices = 1});
    };
    add("running sums of rows", OpKind::scan, ScanAttrs{rows}, exact(plane));
    add("running sums of rows, from the end", OpKind::scan, ScanAttrs{rows, true}, exact(plane));
    add("running sums of columns", OpKind::scan, ScanAttrs{columns}, exact(plane));
    const auto indices = [](int64_t n) { return TensorSpec{{n}, DType::i32}; };
    add("rows of 1024", OpKind::sort, SortAttrs{.lines = rows, .kept = 1024},
        indices(plane.elements()));
    add("8 largest of rows of 1024", OpKind::sort,
        SortAttrs{.lines = rows, .kept = 8, .descending = true}, indices(kRows * 8));
    add("8 largest of rows of 64", OpKind::sort,
        SortAttrs{.lines = {64, 1}, .kept = 8, .descending = true}, indices(plane.elements() / 8));
    add("columns of 4096", OpKind::sort, SortAttrs{.lines = columns, .kept = kRows},
        indices(plane.elements()));
  }

  void windows() {
    const auto add = [&](const std::string& name, OpKind op, int64_t planes, int64_t channels,
                         WindowAttrs::Dimension d) {
      d.out = (d.size + 2 * d.padding - d.dilation * (d.kernel - 1) - 1) / d.stride + 1;
      const WindowAttrs attrs{
          .planes = planes, .channels = channels, .dimensions = {WindowAttrs::Dimension{}, d, d}};
      const TensorSpec x = values({planes, d.size, d.size, channels}),
                       y = values({planes, attrs.windows(), attrs.kernel(), channels});
      const bool back = op == OpKind::window_grad;
      cases_.push_back(
          {.name = name, .op = op, .attrs = attrs, .in = {back ? y : x}, .out = {back ? x : y}});
    };
    for (const OpKind op : {OpKind::window, OpKind::window_grad}) {
      add("3 x 3 of 32 x 32, padded", op, 16, 64, {.size = 32, .kernel = 3, .padding = 1});
      add("3 x 3 of 32 x 32, stride 2", op, 32, 64,
          {.size = 32, .kernel = 3, .stride = 2, .padding = 1});
      add("2 x 2 of 32 x 32, stride 2", op, 64, 64, {.size = 32, .kernel = 2, .stride = 2});
      add("7 x 7 of 64 x 64, stride 2, 3 channels", op, 64, 3,
          {.size = 64, .kernel = 7, .stride = 2, .padding = 3});
    }
  }

  DType dtype_;
  std::vector<GeneralCase> cases_;
};

}  // namespace

std::vector<GeneralCase> general_cases(DType dtype) {
  return Cases(dtype).all();
}

}  // namespace dstrain::bench
