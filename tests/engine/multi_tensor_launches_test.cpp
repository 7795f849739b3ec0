// Which instructions of a step run as one launch, and that a run with such launches is the same run.
#include "runtime/engine/step/multi_tensor_launches.h"

#include <catch2/catch.hpp>

#include "kernels/cpu/cpu_library.h"
#include "kernels/cuda/library.h"
#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/devices/emulated_stream.h"
#include "runtime/ir/rule.h"
#include "tests/engine/test_rank.h"
#include "tests/support/fake_library.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

class Nothing final : public MultiTensorKernel {
 public:
  void run(std::span<const KernelCall>) const override {}
};

// Has launches for up to `most` instructions of adam.
class MultiTensorLibrary final : public FakeLibrary {
 public:
  explicit MultiTensorLibrary(size_t most) : most_(most) {}
  std::unique_ptr<MultiTensorKernel> make_multi_tensor(std::span<const KernelSpec> specs,
                                                       size_t& count) const override {
    count = std::min(most_, specs.size());
    if (specs[0].op != OpKind::adam || count < 2) return nullptr;
    return std::make_unique<Nothing>();
  }

 private:
  size_t most_;
};

Job small_job(int ranks) {
  Job job;
  job.ranks = ranks;
  job.model = GptLite{.n_layer = 3, .n_embd = 12, .n_head = 3, .block_size = 7, .vocab_size = 11};
  job.batch = {.train_batch = 2 * ranks, .micro_batch = 2, .accumulation = 1};
  return job;
}

// The sizes of the launches of a step whose buffers all have memory of their own, or all the same memory.
// `on_host`: the optimizer's instruction whose operands are the host's; -1: none.
std::vector<size_t> launches_of(const Job& job, size_t most, bool same_memory = false,
                                int on_host = -1) {
  Plan plan = make_rank_plan(job, place_of(job, 0), fake_inputs()).train;
  for (const Instruction& op : plan.program.instructions)
    if (op.op == OpKind::adam && on_host-- == 0)
      for (const auto* list : {&op.reads, &op.writes})
        for (const BufferId id : *list)
          if (id != kNone) plan.program.at(plan.program.root(id)).space = Space::host;
  std::vector<std::vector<std::byte>> memory(plan.program.buffers.size());
  const auto tensor = [&](BufferId id) {
    if (id == kNone) return Tensor{};
    const Buffer& buffer = plan.program.at(id);
    std::vector<std::byte>& bytes =
        memory[same_memory ? 0 : static_cast<size_t>(plan.program.root(id))];
    bytes.resize(100000);
    return Tensor{bytes.data() + buffer.parent_offset * size_of(buffer.dtype), buffer.shape,
                  buffer.dtype};
  };
  const MultiTensorLaunches launches(plan, MultiTensorLibrary(most), tensor);
  std::vector<size_t> sizes;
  for (size_t i = 0; i < plan.order.size(); ++i)
    if (const MultiTensorLaunch* launch = launches.at(i)) {
      CHECK(launch->first == i);
      CHECK(launch->calls.size() == launch->count);
      for (size_t k = 0; k < launch->count; ++k) {
        const Instruction& op =
            plan.program.instructions[static_cast<size_t>(plan.order[i + k].instruction)];
        CHECK(op.op == OpKind::adam);
        CHECK_FALSE(runs_on_host(plan.program, op));
        CHECK(launch->calls[k].in.size() == op.reads.size());
        CHECK(launch->calls[k].out[0].data == tensor(op.writes[0]).data);
      }
      sizes.push_back(launch->count);
    }
  return sizes;
}

// A library without its launches for several instructions.
class OneByOne final : public KernelLibrary {
 public:
  explicit OneByOne(std::shared_ptr<const KernelLibrary> all) : all_(std::move(all)) {}
  int64_t workspace_bytes(const KernelSpec& spec) const override {
    return all_->workspace_bytes(spec);
  }
  int64_t packed_bytes(const KernelSpec& spec) const override { return all_->packed_bytes(spec); }
  bool fuses(const KernelSpec& spec) const override { return all_->fuses(spec); }
  int64_t row_multiple() const override { return all_->row_multiple(); }
  int64_t sum_rows_part(const KernelSpec& spec) const override { return all_->sum_rows_part(spec); }
  std::unique_ptr<Kernel> make(const KernelSpec& spec) const override { return all_->make(spec); }
  std::unique_ptr<FinishKernels> make_finish(const FinishRule& rule) const override {
    return all_->make_finish(rule);
  }
  std::string description() const override { return all_->description(); }

 private:
  std::shared_ptr<const KernelLibrary> all_;
};

Backend emulated_backend(bool launches) {
  Backend backend;
  backend.device = make_emulated_device();
  backend.compute = backend.device->make_stream();
  backend.copies = backend.device->make_stream();
  std::shared_ptr<const KernelLibrary> library =
      make_emulated_library(*static_cast<EmulatedStream*>(backend.compute->native()));
  if (!launches) library = std::make_shared<OneByOne>(library);
  backend.library = library;
  backend.host_library = make_cpu_library();
  return backend;
}

}  // namespace

TEST_CASE("instructions of the optimizer that follow each other are one launch") {
  using Sizes = std::vector<size_t>;
  const Job one = small_job(1);
  CHECK(launches_of(one, 60) == Sizes{5});  // embedding, three blocks, head
  CHECK(launches_of(one, 2) == Sizes{2, 2});
  CHECK(launches_of(one, 1).empty());
  Job decays = one;
  decays.optimizer.weight_decay = 0.1;
  decays.weight_decay_exclude = {"*.bias"};
  CHECK(launches_of(decays, 1000).size() == 1);
  CHECK(launches_of(decays, 1000)[0] > 20);
  Job offloaded = one;
  offloaded.offload.optimizer = OffloadTo::cpu;  // the host updates
  CHECK(launches_of(offloaded, 60).empty());
  CHECK(launches_of(one, 60, false, 0) == Sizes{4});
  CHECK(launches_of(one, 60, false, 2) == Sizes{2, 2});
  CHECK(launches_of(one, 60, false, 4) == Sizes{4});
  Job shared = small_job(2);
  shared.zero_stage = 1;  // each unit is gathered behind its update
  CHECK(launches_of(shared, 60).empty());
  shared.zero_stage = 3;
  shared.reduce = ReduceMode::micro_batch;
  CHECK(launches_of(shared, 60) == Sizes{5});
}

TEST_CASE("instructions that write what others use are launched one by one") {
  CHECK(launches_of(small_job(1), 60, true).empty());
}

TEST_CASE("a run whose updates are one launch is the same run, as a graph too") {
  const RandomDataset data(11);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Job job = small_job(1);
    job.dtype = job.wire_dtype = dtype;
    job.weight_decay_exclude = {"*.bias", "*ln*"};
    job.optimizer.weight_decay = 0.1;
    TestRank grouped(job, data, 1, emulated_backend(true)),
        single(job, data, 1, emulated_backend(false));
    for (int step = 0; step < 3; ++step) CHECK(grouped.step(0.01f) == single.step(0.01f));
    const Program& program = grouped.plans.train.program;
    for (const Parameter& p : program.parameters) {
      CAPTURE(name_of(dtype), p.name);
      const Tensor a = grouped.model.master(p).values, b = single.model.master(p).values;
      std::vector<std::byte> x(static_cast<size_t>(a.bytes())), y(x.size());
      grouped.backend.device->download(x.data(), a.data, a.bytes());
      single.backend.device->download(y.data(), b.data, b.bytes());
      CHECK(x == y);
    }
  }
}
