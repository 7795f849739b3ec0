// Operands with a part of the rows of a micro-batch: their results have the bits of the same rows of the whole operand.
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

struct BatchSizes {
  int64_t samples, seq_len, columns;
  int64_t rows() const { return samples * seq_len; }
};
// The numbers of elements of a row and of a sample are no multiples of those that a vector, or a block of random numbers, has.
const BatchSizes kBatches[] = {{1, 1, 1},  {3, 1, 3},    {2, 3, 97},   {3, 5, 13},
                               {3, 7, 16}, {2, 31, 129}, {2, 50, 300}, {3, 11, 1161}};

// Which rows a part has: within a sample, the end of one and the begin of the next, whole samples and more.
std::vector<RowsPart> parts_of(const BatchSizes& s, std::vector<int64_t>& counts) {
  const int64_t r = s.rows();
  std::vector<RowsPart> parts;
  const auto add = [&](int64_t first, int64_t end) {
    if (first < 0 || first >= end || end > r) return;
    parts.push_back({first, r});
    counts.push_back(end - first);
  };
  add(0, r);
  add(0, 1);
  add(r - 1, r);
  add(1, r);
  add(0, r - 1);
  add(s.seq_len / 2, s.seq_len / 2 + 1);
  add(s.seq_len - 1, s.seq_len + 1);
  add(s.seq_len, 2 * s.seq_len);
  add(s.seq_len / 2, s.seq_len / 2 + s.seq_len);
  add(s.seq_len + 1, r - 1);
  return parts;
}

// An operand that has a row for each row of the micro-batch, or the same elements for any part of it.
struct PartOperand {
  Operand whole;
  bool by_row = true;
};

std::vector<Operand> operands_of(const std::vector<PartOperand>& operands, int64_t rows,
                                 int64_t first, int64_t count) {
  std::vector<Operand> chosen;
  for (const PartOperand& o : operands) {
    chosen.push_back(o.whole);
    if (!o.by_row || o.whole.shape.elements() == 0) continue;
    const int64_t row = o.whole.shape.elements() / rows;
    chosen.back().shape = o.whole.shape.rank == 1 ? Shape{count} : Shape{count, row};
    if (!o.whole.values.empty())
      chosen.back().values = {o.whole.values.begin() + first * row,
                              o.whole.values.begin() + (first + count) * row};
  }
  return chosen;
}

// Requires that the results of each part have the bits of its rows in those of the whole. Attrs have a `part`, or what
// part_in returns of them has one.
template <class Attrs, class Part>
void require_rows_of_whole(Call call, Attrs attrs, const Part& part_in, const BatchSizes& s,
                           const std::vector<PartOperand>& in,
                           const std::vector<PartOperand>& out) {
  call.attrs = attrs;
  const int64_t r = s.rows();
  const auto whole = run_at_offset(call, operands_of(in, r, 0, r), operands_of(out, r, 0, r), 0);
  std::vector<int64_t> counts;
  const std::vector<RowsPart> parts = parts_of(s, counts);
  for (size_t p = 0; p < parts.size(); ++p) {
    const int64_t first = parts[p].first, count = counts[p];
    INFO(name_of(call.op) << " of rows " << first << " + " << count << " of " << s.samples << " x "
                          << s.seq_len << " x " << s.columns);
    part_in(attrs) = parts[p];
    call.attrs = attrs;
    const auto part =
        run_everywhere(call, operands_of(in, r, first, count), operands_of(out, r, first, count));
    for (size_t i = 0; i < part.size(); ++i) {
      const auto row_bytes = static_cast<size_t>(whole[i].bytes() / r);
      INFO("output " << i);
      REQUIRE(part[i].raw() == whole[i].raw().substr(static_cast<size_t>(first) * row_bytes,
                                                     static_cast<size_t>(count) * row_bytes));
    }
  }
}

template <class Attrs>
void require_rows_of_whole(const Call& call, const Attrs& attrs, const BatchSizes& s,
                           const std::vector<PartOperand>& in,
                           const std::vector<PartOperand>& out) {
  require_rows_of_whole(
      call, attrs, [](Attrs& a) -> RowsPart& { return a.part; }, s, in, out);
}

PartOperand rows_of(const BatchSizes& s, DType dtype, uint64_t seed) {
  return {{Shape{s.rows(), s.columns}, dtype, normal_values(s.rows() * s.columns, seed)}};
}
PartOperand row_results(const BatchSizes& s, DType dtype) {
  return {{Shape{s.rows(), s.columns}, dtype}};
}
PartOperand documents_of_rows(const BatchSizes& s) {
  return {{Shape{s.rows()}, DType::i32, documents_of_samples(s.samples, s.seq_len)}};
}
PartOperand table_of(int64_t rows, int64_t columns, DType dtype, uint64_t seed) {
  return {{Shape{rows, columns}, dtype, normal_values(rows * columns, seed)}, false};
}

StepState some_state() {
  StepState state;
  state.seed = 0x123456789abcdefull;
  state.first_sample = 0x1'0000'0003;
  return state;
}

TEST_CASE("dropout of a part of the rows drops what it drops of the whole micro-batch") {
  const StepState state = some_state();
  Sample sample = sample_if_emulated(3);
  for (DType dtype : kRunTypes)
    for (const BatchSizes& s : kBatches)
      for (const float p : {0.0f, 0.3f}) {
        if (!sample.takes()) continue;
        const DropoutAttrs attrs{.dropout = p, .site = 9, .seq_len = s.seq_len};
        Call call{.op = OpKind::add_dropout, .state = &state, .sample_offset = 7};
        require_rows_of_whole(call, attrs, s, {rows_of(s, dtype, 1), rows_of(s, dtype, 2)},
                              {row_results(s, dtype)});
        call.op = OpKind::dropout_grad;
        require_rows_of_whole(call, attrs, s, {rows_of(s, dtype, 2)}, {row_results(s, dtype)});
      }
}

TEST_CASE("add_layer_norm of a part of the rows has the sums and norms of the whole micro-batch") {
  const StepState state = some_state();
  Sample sample = sample_if_emulated(3);
  for (DType dtype : kRunTypes)
    for (const BatchSizes& s : kBatches) {
      if (!sample.takes()) continue;
      const AddLayerNormAttrs attrs{.add = {.dropout = 0.3f, .site = 9, .seq_len = s.seq_len}};
      const PartOperand statistics{{Shape{s.rows()}, DType::f32}};
      require_rows_of_whole(Call{.op = OpKind::add_layer_norm, .state = &state, .sample_offset = 7},
                            attrs, [](AddLayerNormAttrs& a) -> RowsPart& { return a.add.part; }, s,
                            {rows_of(s, dtype, 1), rows_of(s, dtype, 2),
                             table_of(1, s.columns, dtype, 3), table_of(1, s.columns, dtype, 4)},
                            {row_results(s, dtype), row_results(s, dtype), statistics, statistics});
    }
}

TEST_CASE("rotary of a part of the rows turns them as those of the whole micro-batch") {
  Sample sample = sample_if_emulated(3);
  for (DType dtype : kRunTypes)
    for (BatchSizes s : kBatches)
      for (const OpKind op : {OpKind::rotary, OpKind::rotary_grad})
        for (const bool documents : {false, true}) {
          if (!sample.takes()) continue;
          s.columns = s.columns / 6 * 6 + 6;
          std::vector<PartOperand> in{rows_of(s, dtype, 1)};
          if (documents) in.push_back(documents_of_rows(s));
          require_rows_of_whole({op}, RotaryAttrs{.head_size = 6, .seq_len = s.seq_len}, s, in,
                                {row_results(s, dtype)});
        }
}

TEST_CASE("embed and add_rows of a part of the rows add the positions of these") {
  Sample sample = sample_if_emulated(3);
  for (DType dtype : kRunTypes)
    for (const BatchSizes& s : kBatches)
      for (const bool documents : {false, true}) {
        if (!sample.takes()) continue;
        const EmbedAttrs attrs{.seq_len = s.seq_len};
        const PartOperand positions = table_of(s.seq_len + 2, s.columns, dtype, 3);
        std::vector<PartOperand> in{
            {{Shape{s.rows()}, DType::i32, integer_values(s.rows(), 1, 0, 5)}},
            table_of(5, s.columns, dtype, 2),
            positions};
        if (documents) in.push_back(documents_of_rows(s));
        require_rows_of_whole({OpKind::embed}, attrs, s, in, {row_results(s, dtype)});
        in = {rows_of(s, dtype, 1), positions};
        if (documents) in.push_back(documents_of_rows(s));
        require_rows_of_whole({OpKind::add_rows}, attrs, s, in, {row_results(s, dtype)});
      }
}

// Against sums in the order of the rows, in f32: the bits of them are the promise.
TEST_CASE("embed_position_grad of a part adds its rows, and other positions are zeros or kept") {
  Sample sample = sample_if_emulated(3);
  for (DType dtype : kRunTypes)
    for (const BatchSizes& s : kBatches)
      for (const bool accumulate : {false, true})
        for (const bool documents : {false, true}) {
          const int64_t c = s.columns, positions = s.seq_len + 2;
          const PartOperand all_rows = rows_of(s, dtype, 2), all_documents = documents_of_rows(s);
          const auto before = rounded(normal_values(positions * c, 3), DType::f32);
          std::vector<int64_t> counts;
          const std::vector<RowsPart> parts = parts_of(s, counts);
          for (size_t p = 0; p < parts.size(); ++p) {
            // With documents the emulated device sorts in many threads: all rows and some parts must do.
            if (documents && p % 4 != 0) continue;
            if (!sample.takes()) continue;
            const int64_t first = parts[p].first, count = counts[p];
            INFO("rows " << first << " + " << count << " of " << s.samples << " x " << s.seq_len
                         << " x " << c << (documents ? " with documents" : ""));
            std::vector<PartOperand> in{all_rows};
            if (documents) in.push_back(all_documents);
            Call call{.op = OpKind::embed_position_grad, .accumulate = accumulate};
            call.attrs = EmbedAttrs{.seq_len = s.seq_len, .part = parts[p]};
            const auto got = run_everywhere(call, operands_of(in, s.rows(), first, count),
                                            {{Shape{positions, c}, DType::f32, before}});
            const auto d_x = rounded(all_rows.whole.values, dtype);
            // With documents rows are added to what was there, else their sum is.
            std::vector<float> sums(before.size());
            if (accumulate && documents) sums = {before.begin(), before.end()};
            for (int64_t i = first * c; i < (first + count) * c; ++i) {
              const auto row = static_cast<size_t>(i / c);
              const double begin = documents ? all_documents.whole.values[row] : 0;
              const int64_t place = i / c % s.seq_len - static_cast<int64_t>(begin);
              sums[static_cast<size_t>(place * c + i % c)] +=
                  static_cast<float>(d_x[static_cast<size_t>(i)]);
            }
            if (accumulate && !documents)
              for (size_t i = 0; i < sums.size(); ++i)
                sums[i] = static_cast<float>(before[i]) + sums[i];
            CHECK(got[0].values() == std::vector<double>(sums.begin(), sums.end()));
          }
        }
}

}  // namespace
}  // namespace dstrain::parity
