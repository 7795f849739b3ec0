// What lies behind the true rows of a padded vocabulary, after training. Bits of whole runs: tests/engine/device.
#include <catch2/catch.hpp>

#include "kernels/cpu/cpu_library.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

// The CPU's kernels, for plans whose vocabularies are padded.
class PaddingLibrary final : public KernelLibrary {
 public:
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return cpu_->workspace_bytes(spec);
  }
  int64_t packed_bytes(const KernelSpec& spec) const override { return cpu_->packed_bytes(spec); }
  int64_t row_multiple() const override { return 8; }
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override { return cpu_->make(spec); }
  std::string description() const override { return "the CPU's kernels with padding"; }

 private:
  std::unique_ptr<KernelLibrary> cpu_ = make_cpu_library();
};

// Returns how many of elements [begin, end) are not 0.
int64_t nonzero(const Tensor& t, int64_t begin, int64_t end) {
  int64_t count = 0;
  for (int64_t i = begin; i < end; ++i)
    count += t.dtype == DType::f32 ? t.as<float>()[i] != 0 : t.as<uint16_t>()[i] != 0;
  return count;
}

}  // namespace

TEST_CASE("weights, gradients and optimizer state of a vocabulary's padding stay zero") {
  const RandomDataset data(13, 0.1);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool tied : {false, true}) {
      Job job;
      job.model = GptLite{.n_layer = 1,
                          .n_embd = 6,
                          .n_head = 2,
                          .block_size = 7,
                          .tied_head = tied,
                          .vocab_size = 13};
      job.batch = {4, 2, 2};
      job.dtype = job.wire_dtype = dtype;
      job.optimizer.weight_decay = 0.1;
      CAPTURE(name_of(dtype), tied);
      Backend backend = make_backend(implementations(), DeviceChoice::cpu);
      backend.library = std::make_shared<PaddingLibrary>();
      TestRank rank(job, data, 1, std::move(backend));
      for (int step = 0; step < 3; ++step) rank.step(0.01f);
      const Program& program = rank.plans.train.program;
      int64_t padded = 0, states = 0;
      for (const Parameter& p : program.parameters) {
        const int64_t rows = p.shape.elements(), all = program.at(p.value).shape.elements();
        if (rows == all) continue;
        CHECK(rows == 13 * 6);
        CHECK(all == 16 * 6);
        ++padded;
        const std::string& unit = program.units[static_cast<size_t>(p.unit)].name;
        for (const char* what : {"params", "grads", "master", "exp_avg", "exp_avg_sq"}) {
          const BufferId id = program.find(std::string(what) + ":" + unit);
          if (id == kNone) continue;
          CAPTURE(what, p.name);
          const Tensor t = rank.arenas.tensor(rank.plans.train, id);
          CHECK(nonzero(t, p.offset, p.offset + rows) > rows / 2);
          CHECK(nonzero(t, p.offset + rows, p.offset + all) == 0);
          ++states;
        }
      }
      CHECK(padded == (tied ? 1 : 2));
      CHECK(states == padded * (dtype == DType::f32 ? 4 : 5));
    }
}
