// Trains random legal configurations at a random stage and compares the results, bit for bit, with stage 0 on
// the same ranks, and in fp32 with one rank. mpirun starts this program.
//   stages_property [--cases N] [--seconds S] [--seed N]
// In a sampled run (tests/support/sample.h) 50 cases, from the number of the sample on.
// A case that fails prints its own seed: --seed N --cases 1 repeats it.
#define OMPI_SKIP_MPICXX 1
#include <fmt/core.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>

#include "runtime/comm/mpi/mpi_settings.h"
#include "tests/engine/device/submitted_library.h"
#include "tests/engine/stages/run_steps.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

using namespace dstrain;

namespace {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool coin() { return between(0, 1) == 1; }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[between(0, static_cast<int64_t>(list.size()) - 1)];
  }

 private:
  std::mt19937_64 random_;
};

Job random_job(Dice& dice, int ranks) {
  Job job;
  job.ranks = ranks;
  if (dice.between(0, 3) > 0) {
    GptLite m;
    m.n_layer = dice.between(1, 4);
    m.n_head = dice.between(1, 3);
    m.n_embd = m.n_head * dice.between(1, 11);
    m.block_size = dice.between(1, 9);
    m.vocab_size = dice.between(2, 40);
    m.dropout = dice.coin() ? 0.1 : 0;
    m.gelu = dice.coin();
    m.qkv_bias = dice.coin();
    m.tied_head = dice.coin();
    job.model = m;
  } else {  // down to fewer parameters than ranks
    BenchmarkModel m;
    m.n_layer = dice.between(1, 9);
    m.in_size = dice.between(1, 17);
    m.hidden_size = dice.between(1, 33);
    m.out_size = dice.between(2, 9);
    job.model = m;
  }
  job.batch.micro_batch = dice.between(1, 3);
  job.batch.accumulation = dice.between(1, 4);
  job.batch.train_batch = job.batch.micro_batch * job.batch.accumulation * ranks;
  job.dtype = dice.one_of({DType::f32, DType::f32, DType::bf16, DType::f16});
  job.wire_dtype = dice.coin() ? job.dtype : dice.one_of({DType::f32, DType::bf16, DType::f16});
  job.grad_dtype = dice.coin() ? job.dtype : DType::f32;
  if (job.dtype == DType::f16) {
    job.skip_on_overflow = true;
    job.loss_scale = {.dynamic = dice.coin(),
                      .initial = std::ldexp(1.0, static_cast<int>(dice.between(2, 24))),
                      .window = dice.between(1, 3),
                      .hysteresis = 1,
                      .minimum = 0x1p-40};
  } else {
    job.skip_on_overflow = job.wire_dtype == DType::f16 || dice.coin();
  }
  job.gradient_clipping = dice.one_of({0.0, 0.05, 1.0});
  job.reduce = dice.coin() ? ReduceMode::boundary : ReduceMode::micro_batch;
  job.optimizer.weight_decay = dice.coin() ? 0.1 : 0;
  if (dice.between(0, 3) == 0) {
    job.optimizer.kind = OptimizerKind::sgd;
    job.optimizer.momentum = dice.coin() ? 0.9 : 0;
    job.optimizer.decoupled_decay = false;
  } else if (dice.between(0, 3) == 0) {
    job.optimizer.kind =
        dice.one_of({OptimizerKind::adagrad, OptimizerKind::lion, OptimizerKind::lamb});
  } else if (dice.between(0, 2) == 0) {
    job.optimizer.kind = OptimizerKind::muon;
    job.optimizer.momentum = 0.95;
    job.optimizer.gram = dice.coin();
  }
  if (dice.coin()) job.weight_decay_exclude = {"*.bias", "*ln*"};
  job.seed = static_cast<uint64_t>(dice.between(0, 1000));
  return job;
}

// Settings that must not change the result. `drive`: a directory for what is offloaded to nvme.
Job moved(Job job, Dice& dice, const std::string& drive) {
  const auto limit = [&] { return dice.one_of<int64_t>({0, 100, 3000, 50'000, 1'000'000'000}); };
  job.zero_stage = static_cast<int>(dice.between(1, 3));
  job.reduce_bucket_elements = limit();
  job.overlap_comm = dice.coin();
  job.recompute.mode =
      dice.one_of({RecomputeMode::none, RecomputeMode::interval, RecomputeMode::selective});
  job.recompute.interval = job.recompute.mode == RecomputeMode::interval ? dice.between(1, 3) : 0;
  job.gather = {.prefetch_elements = limit(),
                .param_persistence = limit(),
                .model_persistence = limit(),
                .max_live_elements = limit(),
                .max_reuse_distance = limit()};
  job.shards.ranks = static_cast<int>(dice.between(1, job.ranks));
  while (job.ranks % job.shards.ranks != 0) --job.shards.ranks;
  OffloadConfig& offload = job.offload;
  offload.nvme_paths = {drive};
  offload.optimizer = dice.one_of({OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme});
  offload.optimizer_on = offload.optimizer == OffloadTo::nvme
                             ? UpdateOn::automatic
                             : dice.one_of({UpdateOn::host, UpdateOn::device});
  offload.activations = dice.one_of({OffloadTo::none, OffloadTo::cpu, OffloadTo::nvme});
  if (job.zero_stage == 3 && dice.coin())
    offload.parameters = dice.one_of({OffloadTo::cpu, OffloadTo::nvme});
  offload.ratio = dice.one_of({1.0, 0.5});
  offload.max_in_cpu = limit();
  offload.read_ahead = dice.coin() ? 0 : 16 * limit();
  return job;
}

bool close(const RunResult& a, const RunResult& b, double relative) {
  for (size_t i = 0; i < a.loss.size(); ++i)
    if (!(std::abs(a.loss[i] - b.loss[i]) <= relative * std::abs(b.loss[i]) + 1e-12)) return false;
  return true;
}

// Returns what is wrong, or "".
std::string try_case(uint64_t seed, Communicator& comm, const std::string& drive) {
  Dice dice(seed);
  const Job job = random_job(dice, comm.size());
  // Ignored targets, if some targets certainly remain.
  const int64_t targets = job.batch.train_batch * job.model.context();
  const RandomDataset data(classes_of(job.model), dice.coin() && targets >= 20 ? 0.2 : 0);
  constexpr int kSteps = 4;
  const Job other = moved(job, dice, drive);
  const RunResult expected = run_steps(job, data, comm, kSteps);
  // Copies run beside computation on a device that has memory of its own.
  const bool device = other.offload != OffloadConfig{} && dice.coin();
  const RunResult result = device ? run_steps(other, data, comm, kSteps, 1, submitted_backend())
                                  : run_steps(other, data, comm, kSteps);
  std::string wrong = difference(expected, result, comm);
  if (wrong.empty() && result.sent_per_step != result.planned_to_send)
    wrong = fmt::format("{} bytes sent, {} planned", result.sent_per_step, result.planned_to_send);
  if (wrong.empty() && job.dtype == DType::f32 && job.wire_dtype == DType::f32) {
    SelfComm alone;
    Job one = job;
    one.ranks = 1;
    one.batch.accumulation *= job.ranks;
    // Muon enlarges the small singular values of a direction, and with them the rounding of sums over ranks.
    const double relative = job.optimizer.kind == OptimizerKind::muon ? 1e-3 : 1e-6;
    if (!close(expected, run_steps(one, data, alone, kSteps), relative))
      wrong = "one rank alone differs";
  }
  if (wrong.empty()) return {};
  return fmt::format("{}\n  {}\n  against {}", wrong, describe(other), describe(job));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("random configurations against stage 0");
  int64_t cases = 100;
  double seconds = 0;
  uint64_t seed = 1;
  if (const char* sample = std::getenv("DSTRAIN_SAMPLE")) {
    cases = 50;
    seed = std::strtoull(sample, nullptr, 10);
  }
  app.add_option("--cases", cases, "how many, unless --seconds is given");
  app.add_option("--seconds", seconds, "go on for so long");
  app.add_option("--seed", seed, "of the first case; the next ones count up");
  CLI11_PARSE(app, argc, argv);
  prepare_mpi_settings();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &argc);
  const std::unique_ptr<Communicator> comm = make_communicator();
  const auto start = std::chrono::steady_clock::now();
  const TempDir drive;
  int64_t done = 0;
  while (true) {
    double go_on = done < cases;
    if (seconds > 0)
      go_on =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < seconds;
    std::vector<double> all(static_cast<size_t>(comm->size()));
    comm->gather_values({&go_on, 1}, all);  // rank 0's clock decides
    if (all[0] == 0) break;
    const uint64_t current = seed + static_cast<uint64_t>(done++);
    const std::string wrong = try_case(current, *comm, drive.path());
    if (wrong.empty()) continue;
    fmt::print(stderr, "rank {}: seed {}: {}\n", comm->rank(), current, wrong);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (comm->rank() == 0)
    fmt::print("{} configurations on {} ranks, seeds {} to {}: all equal\n", done, comm->size(),
               seed, seed + static_cast<uint64_t>(done) - 1);
  comm->finish();
  MPI_Finalize();
  return 0;
}
