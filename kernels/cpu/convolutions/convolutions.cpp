#include "kernels/cpu/convolutions/convolutions.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/convolutions/packed_weights.h"
#include "kernels/cpu/convolutions/runs.h"
#include "kernels/cpu/convolutions/tile_sums.h"
#include "kernels/cpu/convolutions/weight_grad.h"
#include "kernels/cpu/products/convert.h"
#include "kernels/operands.h"
#include "runtime/core/isa/isa.h"
#include "runtime/core/threads/parts.h"
#include "runtime/ir/op.h"

namespace dstrain {
namespace {

constexpr int64_t kRowsAtATime =
    96;  // rows of a job, about: a panel of the weights stays in the second-level cache

// convolution and convolution_input_grad: rows of the result are sums of rows of the first operand times weights.
class RowsOfSums final : public Kernel {
 public:
  explicit RowsOfSums(const KernelSpec& spec)
      : dtype_(spec.out[0].dtype), threads_(spec.threads), tile_(tiles_of_sums(dtype_)) {
    const auto c = attrs_as<ConvolutionAttrs>(spec.attrs);
    const bool back = spec.op == OpKind::convolution_input_grad;
    samples_ = c.windows.samples;
    runs_ = convolution_runs(c.windows, back);
    const int64_t kernel = c.windows.kernel(), of_output = c.windows.channels * kernel;
    weights_ = {.depth = back ? c.outputs : c.windows.channels,
                .columns = back ? c.windows.channels : c.outputs,
                .depth_stride = back ? of_output : kernel,
                .column_stride = back ? kernel : of_output,
                .places = runs_.places,
                .panel = tile_.columns,
                .element_bytes = size_of(dtype_)};
    for (size_t run = 0; run < runs_.runs.size(); ++run) {
      const int64_t rows = runs_.runs[run].count * samples_;
      const int64_t parts = (rows + kRowsAtATime - 1) / kRowsAtATime;
      for (int64_t part = 0; part < parts; ++part)
        chunks_.push_back({run, rows * part / parts, rows * (part + 1) / parts});
    }
  }

  int64_t workspace_bytes() const { return weights_.bytes(); }

  void run(const KernelCall& call) const override {
    float* const packed = workspace<float>(call, workspace_bytes() / 4);
    run_ranges(threads_, weights_.panels(), [&](int64_t begin, int64_t end) {
      weights_.pack(call.in[1].data, begin, end, packed);
    });
    const auto chunks = static_cast<int64_t>(chunks_.size());
    run_ranges(threads_, weights_.panels() * chunks, [&](int64_t begin, int64_t end) {
      std::vector<TileSums::Product> products;
      for (int64_t job = begin; job < end; ++job)
        sum_rows(call, packed, job / chunks, chunks_[static_cast<size_t>(job % chunks)], products);
    });
  }

 private:
  // Rows [begin, end) of a run.
  struct Chunk {
    size_t run = 0;
    int64_t begin = 0, end = 0;
  };

  // Computes the columns of a panel.
  void sum_rows(const KernelCall& call, const float* packed, int64_t panel, const Chunk& chunk,
                std::vector<TileSums::Product>& products) const {
    alignas(64) float sums[kMostTile];
    const ConvolutionRuns::Run& run = runs_.runs[chunk.run];
    const int64_t first = panel * tile_.columns, depth = weights_.word_depth();
    const char* const a = static_cast<const char*>(call.in[0].data);
    char* const y = static_cast<char*>(call.out[0].data);
    const bool narrow = dtype_ != DType::f32;
    const int64_t y_row = runs_.target_step * weights_.columns;
    TileSums tile{.depth = depth,
                  .a_row = runs_.source_step * depth,
                  .a_depth = 1,
                  .b_depth = tile_.columns,
                  .whole_vectors = true,
                  .columns = std::min(tile_.columns, weights_.columns - first),
                  .c_row = narrow ? tile_.columns : y_row};
    const int64_t tiles = (chunk.end - chunk.begin + tile_.rows - 1) / tile_.rows;
    for (int64_t i = 0; i < tiles; ++i) {
      const int64_t row = chunk.begin + (chunk.end - chunk.begin) * i / tiles;
      tile.rows = chunk.begin + (chunk.end - chunk.begin) * (i + 1) / tiles - row;
      products.clear();
      for (size_t s = run.first_source; s < run.first_source + run.sources; ++s) {
        const ConvolutionRuns::Source& source = runs_.sources[s];
        products.push_back(
            {a + (source.position * samples_ + row * runs_.source_step) * depth * 4,
             packed + panel * weights_.panel_words() + source.place * weights_.place_words()});
      }
      tile.products = products.data();
      tile.count = static_cast<int64_t>(products.size());
      char* const at =
          y + ((run.target * samples_ + row * runs_.target_step) * weights_.columns + first) *
                  size_of(dtype_);
      tile.c = narrow ? sums : reinterpret_cast<float*>(at);
      tile_.sum(tile);
      if (narrow)
        finish(sums, tile.c_row, tile.rows, tile.columns, nullptr, false, {at, dtype_, y_row}, 1);
    }
  }

  DType dtype_;
  int threads_;
  TileKernel tile_;
  int64_t samples_ = 1;
  ConvolutionRuns runs_;
  PackedWeights weights_;
  std::vector<Chunk> chunks_;
};

}  // namespace

bool computes_directly(const KernelSpec& spec) {
  const auto c = attrs_as<ConvolutionAttrs>(spec.attrs);
  const DType dtype = spec.in[0].dtype;
  return dtype == DType::f32 || (dtype == DType::bf16 && max_isa() == Isa::avx512_bf16 &&
                                 c.windows.channels % 2 == 0 && c.outputs % 2 == 0);
}

int64_t direct_convolution_workspace_bytes(const KernelSpec& spec) {
  return spec.op == OpKind::convolution_weight_grad ? WeightGrad(spec).workspace_bytes()
                                                    : RowsOfSums(spec).workspace_bytes();
}

std::unique_ptr<Kernel> make_direct_convolution(const KernelSpec& spec) {
  if (spec.op == OpKind::convolution_weight_grad) return std::make_unique<WeightGrad>(spec);
  return std::make_unique<RowsOfSums>(spec);
}

}  // namespace dstrain
