// reduce: sums, largest or smallest values of a formula. Order of a sum, which shapes and views alone decide:
// - By rows, where what is added lies side by side: runs of 256 terms are added in packs of 16 and then as a tree; the runs
//   in order in f64, blocks of 65536 terms by themselves.
// - By columns, where results lie side by side: 64 terms are added in order in f32, and these sums in order in f64, blocks of
//   1024 terms by themselves.
// Blocks are added in order in f64. Minimum memory traffic: the operands once, and the results.
#include <array>

#include "kernels/cpu/memory_bound/general/joined.h"
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/general/reduce.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/general/reduce_runs-inl.h"
#include "kernels/cpu/memory_bound/general/walk-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_REDUCE_ONCE
#define DSTRAIN_SIMD_REDUCE_ONCE
namespace dstrain::simd {
namespace {

struct ReduceRun {
  Reduction kind{};
  Walk walk{};  // by rows: results, then terms; by columns: terms, then results
  bool by_columns = false;
  // By rows: the dimension of results across which an operand is read, so that several rows are computed at a time.
  std::optional<int> across{};
  int64_t results = 0, terms = 0, block = 0;  // block: terms of a block
  double* partial = nullptr;                  // (blocks, results); none where there is one block
  DType dtype{};
  void* out = nullptr;
  bool accumulate = false;

  int64_t blocks() const { return (terms + block - 1) / block; }
  int64_t partial_values() const { return blocks() > 1 ? blocks() * results : 0; }
  double none() const { return none_of(kind); }
};

constexpr int64_t kStrip = 2048;  // columns
constexpr int64_t kFew = 64;      // terms that are added in f32 by columns
constexpr int64_t kRows = 16;     // results that are computed at a time across rows

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Writes the parts of results [at, at + n), or where there is one block the results.
void write_parts(const ReduceRun& r, int64_t b, int64_t at, int64_t n, const double* parts) {
  if (r.partial) {
    std::copy_n(parts, n, r.partial + b * r.results + at);
    return;
  }
  alignas(64) float values[kTile];
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(parts[i]);
  write_values(values, n, r.accumulate, r.dtype, r.out, at);
}

// Returns what is left of `terms` terms of row `row`, from number `first` on.
double reduce_row(const ReduceRun& r, Tiles& tiles, int64_t row, int64_t first, int64_t terms) {
  double total = r.none();
  for (int64_t t = 0; t < terms; t += kTile) {
    const int64_t n = std::min(kTile, terms - t);
    total = reduce_runs(r.kind, total, tiles.values(row * r.terms + first + t, n), n);
  }
  return total;
}

// Computes the parts of results [begin, end) in one block of terms, by rows. Short rows share a tile.
void rows_of_block(const ReduceRun& r, int64_t b, int64_t begin, int64_t end) {
  Tiles tiles(r.walk);
  const int64_t first = b * r.block, terms = std::min(r.block, r.terms - first);
  const bool together = terms == r.terms && terms <= kTile / 2;
  const int64_t most = together ? kTile / terms : kTile;
  double parts[kTile];
  for (int64_t i = begin; i < end; i += most) {
    const int64_t count = std::min(most, end - i);
    if (together)
      reduce_rows(r.kind, tiles.values(i * terms, count * terms), terms, count, parts);
    else
      for (int64_t k = 0; k < count; ++k) parts[k] = reduce_row(r, tiles, i + k, first, terms);
    write_parts(r, b, i, count, parts);
  }
}

// The same where an operand has the elements of several rows side by side.
void rows_of_block_across(const ReduceRun& r, int64_t b, int64_t begin, int64_t end) {
  Tiles tiles(r.walk);
  const auto across = static_cast<size_t>(*r.across), last = static_cast<size_t>(r.walk.last());
  const int64_t first = b * r.block, block_end = std::min(first + r.block, r.terms);
  Rectangle part{.across = *r.across};
  for (int64_t i = begin; i < end; i += part.rows) {
    for (int64_t d = *r.across, rest = i; d >= 0; --d) {
      part.index[static_cast<size_t>(d)] = rest % r.walk.space[static_cast<int>(d)];
      rest /= r.walk.space[static_cast<int>(d)];
    }
    part.rows = std::min({kRows, end - i, r.walk.space.dims[across] - part.index[across]});
    double parts[kRows];
    std::fill_n(parts, kRows, r.none());
    for (int64_t run = first; run < block_end; run += kRun) {
      Pack sums[kRows];
      for (Pack& sum : sums) sum = all(0);
      const int64_t run_end = std::min(run + kRun, block_end);
      for (part.index[last] = run; part.index[last] < run_end; part.index[last] += part.columns) {
        part.columns = std::min(kTile / kRows, run_end - part.index[last]);
        const float* const values = tiles.values(part);
        for (int64_t row = 0; row < part.rows; ++row) {
          const float* const of_row = values + row * part.pitch();
          if (r.kind != Reduction::sum)
            parts[row] = reduce_runs(r.kind, parts[row], of_row, part.columns);
          else
            for_packs(0, part.columns, [&](int64_t c, auto lanes) SIMD_INLINE {
              sums[row] = sums[row] + keep(lanes, load(of_row + c, lanes));
            });
        }
      }
      if (r.kind == Reduction::sum)
        for (int64_t row = 0; row < part.rows; ++row)
          parts[row] += static_cast<double>(sum(sums[row]));
    }
    write_parts(r, b, i, part.rows, parts);
  }
}

// Adds n values to sums of as many columns, or takes the largest or smallest.
SIMD_FN void reduce_few(Reduction kind, const float* values, int64_t n, float* few) {
  const auto each_pack = [&](const auto& f) SIMD_INLINE {
    for_packs(0, n, [&](int64_t i, auto lanes) SIMD_INLINE {
      store(f(load(few + i), load(values + i, lanes)), few + i);
    });
  };
  if (kind == Reduction::sum)
    each_pack([](Pack a, Pack b) SIMD_INLINE { return a + b; });
  else if (kind == Reduction::maximum)
    each_pack([](Pack a, Pack b) SIMD_INLINE { return any_maximum(a, b); });
  else
    each_pack([](Pack a, Pack b) SIMD_INLINE { return any_minimum(a, b); });
}

SIMD_FN void join_few(Reduction kind, const float* few, int64_t n, double* to) {
  if (kind == Reduction::sum)
    for (int64_t i = 0; i < n; ++i) to[i] += static_cast<double>(few[i]);
  else
    for (int64_t i = 0; i < n; ++i) to[i] = joined(kind, to[i], static_cast<double>(few[i]));
}

// The same by columns, in strips of them. Few columns share a tile: as many terms of all of them as it holds.
void columns_of_block(const ReduceRun& r, int64_t b, int64_t begin, int64_t end) {
  Tiles tiles(r.walk);
  const int64_t first = b * r.block, last = std::min(first + r.block, r.terms);
  const bool together = begin == 0 && end == r.results && r.results <= kTile / 2;
  alignas(64) float few[kStrip + kPack];
  double parts[kStrip];
  for (int64_t i = begin; i < end; i += kStrip) {
    const int64_t n = std::min(kStrip, end - i), most = together ? kTile / n : 1;
    std::fill_n(parts, n, r.none());
    for (int64_t t = first; t < last; t += kFew) {
      std::fill_n(few, n + kPack, static_cast<float>(r.none()));
      const int64_t few_end = std::min(t + kFew, last);
      for (int64_t k = t, count = 0; k < few_end; k += count) {
        count = std::min(most, few_end - k);
        for (int64_t c = 0; c < n; c += kTile) {
          const int64_t columns = std::min(kTile, n - c);
          const float* const values = tiles.values(k * r.results + i + c, count * columns);
          for (int64_t j = 0; j < count; ++j)
            reduce_few(r.kind, values + j * columns, columns, few + c);
        }
      }
      join_few(r.kind, few, n, parts);
    }
    for (int64_t c = 0; c < n; c += kTile)
      write_parts(r, b, i + c, std::min(kTile, n - c), parts + c);
  }
}

// Adds the blocks of results [begin, end), and writes them.
void join_blocks(const ReduceRun& r, int64_t begin, int64_t end) {
  alignas(64) float values[kTile];
  for (int64_t i = begin; i < end; i += kTile) {
    const int64_t n = std::min(kTile, end - i);
    for (int64_t c = 0; c < n; ++c) {
      double total = r.partial[i + c];
      for (int64_t b = 1; b < r.blocks(); ++b)
        total = joined(r.kind, total, r.partial[b * r.results + i + c]);
      values[c] = static_cast<float>(total);
    }
    write_values(values, n, r.accumulate, r.dtype, r.out, i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

int64_t elements_of(const Shape& space, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; ++d) n *= space[d];
  return n;
}

// Returns the list with its first `kept` numbers behind the others.
template <class Numbers>
void rotate_kept(Numbers& numbers, int kept, int rank) {
  std::rotate(numbers.begin(), numbers.begin() + kept, numbers.begin() + rank);
}

ReduceRun run_of(const KernelSpec& spec) {
  auto attrs = attrs_as<ReduceAttrs>(spec.attrs);
  attrs.kept = collapse(attrs.space, attrs.views, attrs.kept);
  if (attrs.kept == attrs.space.rank) attrs.space.append(1);  // one term each
  const int rank = attrs.space.rank;
  ReduceRun run{.kind = attrs.kind,
                .by_columns = reduces_columns(attrs),
                .results = elements_of(attrs.space, 0, attrs.kept),
                .terms = elements_of(attrs.space, attrs.kept, rank),
                .block = 65536,
                .dtype = spec.out[0].dtype};
  if (run.by_columns) {
    run.block = 1024;
    rotate_kept(attrs.space.dims, attrs.kept, rank);
    for (View& view : attrs.views)
      for (View::Numbers* numbers : {&view.strides, &view.begin, &view.end})
        rotate_kept(*numbers, attrs.kept, rank);
  }
  run.walk = walk_over(attrs.formula, attrs.space, attrs.views, spec.in);
  const std::optional<int> across = run.walk.across();
  if (!run.by_columns && attrs.kept + 1 == rank && across == attrs.kept - 1) {
    run.across = across;
    return run;
  }
  // Where results and terms are one dimension, the numbers of indices stay the same.
  collapse(attrs.space, attrs.views);
  run.walk = walk_over(attrs.formula, attrs.space, attrs.views, spec.in);
  return run;
}

}  // namespace

int64_t reduce_workspace(const KernelSpec& spec) {
  return run_of(spec).partial_values() * static_cast<int64_t>(sizeof(double));
}

std::unique_ptr<Kernel> make_reduce(const KernelSpec& spec) {
  return kernel_of([run = run_of(spec), threads = spec.threads](const KernelCall& call) {
    ReduceRun here = run;
    here.walk.read(call.in);
    here.out = data(call.out, 0);
    here.accumulate = call.accumulate;
    const int64_t parts = here.partial_values();
    if (parts > 0) here.partial = workspace<double>(call, parts);
    const int64_t work = std::min(here.terms, here.block);
    const int64_t grain =
        here.by_columns ? kTile : std::max<int64_t>(1, kFlatGrain / std::max<int64_t>(1, work));
    for_parts(threads, here.blocks(), here.results, grain,
              [&](int64_t block, int64_t begin, int64_t end) {
                if (here.by_columns)
                  DSTRAIN_BEST(columns_of_block)(here, block, begin, end);
                else if (here.across)
                  DSTRAIN_BEST(rows_of_block_across)(here, block, begin, end);
                else
                  DSTRAIN_BEST(rows_of_block)(here, block, begin, end);
              });
    if (parts == 0) return;
    parallel_ranges(threads, here.results, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(join_blocks)(here, begin, end);
    });
  });
}

}  // namespace dstrain::simd
#endif
