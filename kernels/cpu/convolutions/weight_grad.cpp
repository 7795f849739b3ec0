#include "kernels/cpu/convolutions/weight_grad.h"

#include <algorithm>

#include "kernels/operands.h"
#include "runtime/core/threads/parts.h"
#include "runtime/ir/op.h"

namespace dstrain {
namespace {

constexpr int64_t kMostDepth = 384;          // words of k in one sum
constexpr int64_t kBlockBytes = 512 * 1024;  // of both operands

// Writes rows 2n and 2n + 1 of each position as one row of pairs, the last one with zeros where it is alone.
void interleave(const void* from, int64_t positions, int64_t rows, int64_t columns, void* to,
                int threads) {
  const auto* const x = static_cast<const uint16_t*>(from);
  auto* const pairs = static_cast<uint32_t*>(to);
  const int64_t of_position = (rows + 1) / 2;
  run_ranges(threads, positions * of_position, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % of_position * 2;
      const uint16_t* const low = x + (i / of_position * rows + row) * columns;
      uint32_t* const pair = pairs + i * columns;
      if (row + 1 == rows)
        std::copy_n(low, columns, pair);
      else
        for (int64_t c = 0; c < columns; ++c)
          pair[c] = low[c] | static_cast<uint32_t>(low[columns + c]) << 16;
    }
  });
}

}  // namespace

WeightGrad::WeightGrad(const KernelSpec& spec)
    : attrs_(attrs_as<ConvolutionAttrs>(spec.attrs)),
      dtype_(spec.in[0].dtype),
      threads_(spec.threads),
      tile_(tiles_of_sums(dtype_)),
      runs_(convolution_runs(attrs_.windows, false)) {
  positions_.assign(runs_.runs.size() * runs_.places.size(), -1);
  const int64_t row_bytes = (channels() + attrs_.outputs) * 4;
  int64_t bytes = kBlockBytes;
  for (size_t r = 0; r < runs_.runs.size(); ++r) {
    const ConvolutionRuns::Run& run = runs_.runs[r];
    for (size_t s = run.first_source; s < run.first_source + run.sources; ++s)
      positions_[r * runs_.places.size() + static_cast<size_t>(runs_.sources[s].place)] =
          runs_.sources[s].position;
    if (bytes >= kBlockBytes) {
      blocks_.push_back(r);
      bytes = 0;
    }
    bytes += run.count * depth() * row_bytes;
  }
  blocks_.push_back(runs_.runs.size());
  const int64_t o_tiles = (attrs_.outputs + tile_.rows - 1) / tile_.rows;
  for (int64_t i = 0; i < o_tiles; ++i) {
    const int64_t first = attrs_.outputs * i / o_tiles;
    for (int64_t c = 0; c < channels(); c += tile_.columns)
      for (int64_t place = 0; place < number_of_places(); ++place)
        jobs_.push_back({place, first, attrs_.outputs * (i + 1) / o_tiles - first, c,
                         std::min(tile_.columns, channels() - c)});
  }
}

int64_t WeightGrad::d_y_words() const {
  return in_pairs() ? attrs_.windows.windows() * depth() * attrs_.outputs : 0;
}
int64_t WeightGrad::x_words() const {
  return in_pairs() ? attrs_.windows.positions() * depth() * channels() : 0;
}

int64_t WeightGrad::workspace_bytes() const {
  return (sums() + d_y_words() + x_words()) * 4;
}

WeightGrad::Words WeightGrad::words_of(const KernelCall& call, char* memory) const {
  if (!in_pairs())
    return {static_cast<const char*>(call.in[0].data), static_cast<const char*>(call.in[1].data)};
  char* const x = memory + d_y_words() * 4;
  interleave(call.in[0].data, attrs_.windows.windows(), samples(), attrs_.outputs, memory,
             threads_);
  interleave(call.in[1].data, attrs_.windows.positions(), samples(), channels(), x, threads_);
  return {memory, x};
}

void WeightGrad::run(const KernelCall& call) const {
  char* const memory = workspace<char>(call, workspace_bytes());
  auto* const sums = reinterpret_cast<float*>(memory);
  const Words words = words_of(call, memory + this->sums() * 4);
  run_ranges(threads_, static_cast<int64_t>(jobs_.size()), [&](int64_t begin, int64_t end) {
    for (size_t block = 0; block + 1 < blocks_.size(); ++block)
      for (int64_t job = begin; job < end; ++job)
        add_block(words, blocks_[block], blocks_[block + 1], jobs_[static_cast<size_t>(job)], sums);
  });
  write(sums, call.accumulate, call.out[0].as<float>());
}

// Adds the rows of runs [begin, end), or begins with them.
void WeightGrad::add_block(const Words& words, size_t begin, size_t end, const Job& job,
                           float* sums) const {
  const int64_t outputs = attrs_.outputs;
  TileSums tile{.count = 1,
                .a_row = 1,
                .a_depth = outputs,
                .b_depth = runs_.source_step * channels(),
                .rows = job.outputs,
                .columns = job.channels,
                .c = sums + (job.place * outputs + job.output) * channels() + job.channel,
                .c_row = channels(),
                .add = true};
  if (begin == 0)
    for (int64_t o = 0; o < job.outputs; ++o)
      std::fill_n(tile.c + o * tile.c_row, job.channels, 0.0f);
  for (size_t r = begin; r < end; ++r) {
    const int64_t position = positions_[r * runs_.places.size() + static_cast<size_t>(job.place)];
    if (position < 0) continue;
    const int64_t rows = runs_.runs[r].count * depth();
    for (int64_t row = 0; row < rows; row += kMostDepth) {
      const TileSums::Product product{
          words.d_y + ((runs_.runs[r].target * depth() + row) * outputs + job.output) * 4,
          words.x +
              ((position * depth() + row * runs_.source_step) * channels() + job.channel) * 4};
      tile.products = &product;
      tile.depth = std::min(kMostDepth, rows - row);
      tile_.sum(tile);
    }
  }
}

// Writes the sums (places, outputs, channels) as a gradient (outputs, channels, kernel).
void WeightGrad::write(const float* sums, bool accumulate, float* d_weight) const {
  const int64_t kernel = attrs_.windows.kernel(), of_place = attrs_.outputs * channels();
  run_ranges(threads_, of_place, [&](int64_t begin, int64_t end) {
    if (!accumulate && number_of_places() < kernel)
      std::fill(d_weight + begin * kernel, d_weight + end * kernel, 0.0f);
    for (int64_t i = begin; i < end; ++i) {
      float* const to = d_weight + i * kernel;
      const float* from = sums + i;
      for (const int64_t place : runs_.places) {
        to[place] = accumulate ? to[place] + *from : *from;
        from += of_place;
      }
    }
  });
}

}  // namespace dstrain
