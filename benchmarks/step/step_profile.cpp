// Measures the time of each op in a training step of one rank, in the executor itself.
//   step_profile [--bf16] [--dropout P] [--seq T] [--batch B] [--steps N] [--threads N]
// Uses GPT-lite of the default size. Prints for each op the median over steps and its share of the step. The last
// line is the share outside matrix products (linear, its gradients and packing).
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>

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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("seconds per op of a training step");
  bool bf16_run = false;
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
  }
  const double total = median(totals);
  std::vector<std::pair<double, OpKind>> rows;
  for (const auto& [op, s] : per_op) rows.emplace_back(median(s), op);
  std::sort(rows.rbegin(), rows.rend());
  double outside = 0;
  for (const auto& [s, op] : rows) {
    fmt::print("{:<24}{:>9.1f} ms{:>7.1f} %\n", name_of(op), s * 1e3, 100 * s / total);
    if (!is_product(op)) outside += s;
  }
  fmt::print("{:<24}{:>9.1f} ms, {:.0f} tokens/s\n", "step", total * 1e3,
             static_cast<double>(batch * seq_len) / total);
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
