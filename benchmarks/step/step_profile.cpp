// Measures the time of each op in a training step of one rank, in the executor itself.
//   step_profile [--bf16] [--dropout P] [--seq T] [--batch B] [--steps N] [--threads N] [--json]
// Uses GPT-lite of the default size. Prints for each op the median over steps, its share of the step, and its floor: the
// larger of its FLOPs at the rate of products on registers alone and its operands' bytes at the rate of a copy, both
// measured after each step. The last line is the share outside matrix products (linear, its gradients and packing).
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "benchmarks/attention/probes.h"
#include "benchmarks/kernels/traffic.h"
#include "runtime/core/memory.h"
#include "runtime/plan/cost/machine_rates.h"
#include "tests/engine/test_rank.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

bool is_product(OpKind op) {
  return op == OpKind::linear || op == OpKind::linear_input_grad ||
         op == OpKind::linear_weight_grad || op == OpKind::pack_weight;
}

// Measures what a processor does in a second.
class Probe {
 public:
  explicit Probe(int threads) : threads_(threads) {
    std::memset(from_.data(), 1, kBytes);  // gives every page memory of its own
    copy();
  }

  void measure() {
    f32_.push_back(bench::multiply_add_rate(threads_));
    bf16_.push_back(bench::bf16_rate(threads_));
    const double start = bench::wall_seconds();
    copy();
    traffic_.push_back(2.0 * kBytes / (bench::wall_seconds() - start));
  }
  MachineRates rates() const {
    MachineRates rates;
    rates.device = {median(f32_), median(bf16_), median(traffic_)};
    return rates;
  }

 private:
  static constexpr int64_t kBytes = 128 << 20;

  void copy() const {
    flat_traffic({.read = kBytes, .written = kBytes, .updated = 0}, from_.data(), to_.data(),
                 nullptr, threads_);
  }

  int threads_;
  Memory from_ = Memory::anonymous(kBytes, "benchmark"),
         to_ = Memory::anonymous(kBytes, "benchmark");
  std::vector<double> f32_, bf16_, traffic_;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("seconds per op of a training step");
  bool bf16_run = false, json = false;
  double dropout = 0.1;
  int64_t seq_len = 256, batch = 8, steps = 7, layers = 12;
  int threads = 2;
  app.add_flag("--bf16", bf16_run);
  app.add_option("--dropout", dropout);
  app.add_option("--seq", seq_len);
  app.add_option("--batch", batch);
  app.add_option("--steps", steps);
  app.add_option("--layers", layers);
  app.add_option("--threads", threads);
  app.add_flag("--json", json);
  CLI11_PARSE(app, argc, argv);

  Job job;
  job.model =
      GptLite{.n_layer = layers, .block_size = seq_len, .dropout = dropout, .vocab_size = 65};
  job.batch = {batch, batch, 1};
  if (bf16_run) job.dtype = job.wire_dtype = DType::bf16;
  const RandomDataset data(65);
  TestRank test_rank(job, data, threads);
  const auto& instructions = test_rank.plans.train.program.instructions;

  std::map<OpKind, std::vector<double>> per_op;
  std::vector<double> totals, first;
  Probe probe(threads);
  for (int64_t i = 0; i < steps + 1; ++i) {
    std::vector<double> seconds(instructions.size());
    test_rank.step(1e-4f, seconds);
    if (i == 0) {  // the first step includes page faults and first calls
      first = seconds;
      continue;
    }
    std::map<OpKind, double> sums;
    for (size_t k = 0; k < seconds.size(); ++k) sums[instructions[k].op] += seconds[k];
    double total = 0;
    for (const auto& [op, s] : sums) {
      per_op[op].push_back(s);
      total += s;
    }
    totals.push_back(total);
    probe.measure();
  }
  const double total = median(totals);
  const MachineRates rates = probe.rates();
  std::map<OpKind, double> floors;
  double floor = 0;
  for (const Instruction& op : instructions) {
    const double seconds = kernel_seconds_on_device(test_rank.plans.train.program, op, rates);
    floors[op.op] += seconds;
    floor += seconds;
  }
  std::vector<std::pair<double, OpKind>> rows;
  for (const auto& [op, s] : per_op) rows.emplace_back(median(s), op);
  std::sort(rows.rbegin(), rows.rend());
  if (json) {
    nlohmann::json ops;
    for (const auto& [s, op] : rows)
      ops[std::string(name_of(op))] = {{"ms", s * 1e3}, {"floor_ms", floors[op] * 1e3}};
    const nlohmann::json result{{"step_ms", total * 1e3},
                                {"floor_ms", floor * 1e3},
                                {"gflops_f32", rates.device.flops_f32 * 1e-9},
                                {"gflops_16_bit", rates.device.flops_16_bit * 1e-9},
                                {"traffic_gb_s", rates.device.traffic * 1e-9},
                                {"ops", ops}};
    fmt::print("{}\n", result.dump());
    return 0;
  }
  double outside = 0;
  for (const auto& [s, op] : rows) {
    fmt::print("{:<24}{:>9.1f} ms{:>7.1f} %   floor {:>8.1f} ms\n", name_of(op), s * 1e3,
               100 * s / total, floors[op] * 1e3);
    if (!is_product(op)) outside += s;
  }
  fmt::print("{:<24}{:>9.1f} ms             floor {:>8.1f} ms, {:.0f} tokens/s\n", "step",
             total * 1e3, floor * 1e3, static_cast<double>(batch * seq_len) / total);
  fmt::print("at {:.0f} GFLOP/s in f32, {:.0f} in 16 bits, and {:.1f} GB/s\n",
             rates.device.flops_f32 * 1e-9, rates.device.flops_16_bit * 1e-9,
             rates.device.traffic * 1e-9);
  std::map<OpKind, double> first_ops;
  double first_total = 0;
  for (size_t k = 0; k < first.size(); ++k) {
    first_ops[instructions[k].op] += first[k];
    first_total += first[k];
  }
  fmt::print("first step {:.2f} of the median; over the median: ", first_total / total);
  for (const auto& [s, op] : rows)
    if (first_ops[op] - s > 0.02 * total)
      fmt::print("{} +{:.0f} ms  ", name_of(op), (first_ops[op] - s) * 1e3);
  fmt::print("\n");
  fmt::print("outside matrix products {:.1f} %\n", 100 * outside / total);
  return 0;
}
