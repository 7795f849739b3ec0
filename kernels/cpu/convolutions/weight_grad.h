// convolution_weight_grad: for each place of the windows, the product of the windows' gradients and the positions there, summed
// over the rows of both. The order of additions does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/convolutions/runs.h"
#include "kernels/cpu/convolutions/tile_sums.h"
#include "runtime/ir/kernel.h"

namespace dstrain {

class WeightGrad final : public Kernel {
 public:
  explicit WeightGrad(const KernelSpec& spec);

  int64_t workspace_bytes() const;
  void run(const KernelCall& call) const override;

 private:
  // A tile of the gradient of one place.
  struct Job {
    int64_t place = 0, output = 0, outputs = 0, channel = 0, channels = 0;
  };
  // The two operands in words.
  struct Words {
    const char* d_y = nullptr;
    const char* x = nullptr;
  };

  bool in_pairs() const { return dtype_ != DType::f32; }
  // Words of k at a position.
  int64_t depth() const { return in_pairs() ? (samples() + 1) / 2 : samples(); }
  int64_t samples() const { return attrs_.windows.samples; }
  int64_t channels() const { return attrs_.windows.channels; }
  int64_t number_of_places() const { return static_cast<int64_t>(runs_.places.size()); }
  int64_t sums() const { return number_of_places() * attrs_.outputs * channels(); }
  int64_t d_y_words() const;
  int64_t x_words() const;
  Words words_of(const KernelCall& call, char* memory) const;
  void add_block(const Words& words, size_t begin, size_t end, const Job& job, float* sums) const;
  void write(const float* sums, bool accumulate, float* d_weight) const;

  ConvolutionAttrs attrs_;
  DType dtype_;
  int threads_;
  TileKernel tile_;
  ConvolutionRuns runs_;
  std::vector<int64_t> positions_{};  // of each run, of each place: the source; -1: none
  std::vector<size_t>
      blocks_{};  // runs whose rows stay in the second-level cache begin at these, and end
  std::vector<Job> jobs_{};
};

}  // namespace dstrain
