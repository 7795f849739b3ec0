// What a training step should take on a GPU, for comparison with the first measurement: the time of each kernel from its
// bytes, FLOPs and launches, and from rates that others have measured on such a GPU. Needs no device. No result of it is a
// measurement.
#pragma once

#include <string>
#include <vector>

namespace dstrain::bench {

// A figure that a prediction rests on, and where it is from.
struct Assumption {
  std::string name;
  double value = 0;
  std::string unit, source;
};

// The loads that one of dstrain's kernels has in flight: warps on a multiprocessor, and 16-byte loads in each lane.
struct Occupancy {
  double warps = 0, loads = 0;
  double bytes() const { return warps * 32 * loads * 16; }
};

// Returns what the line `// SASS` above `kernel` states (tests/kernels/cuda/static/check_sass.py compares it with the
// machine code). `source`: the text of a .cu file. Throws RunError if there is no such line.
Occupancy occupancy_in(const std::string& source, const std::string& kernel);

// What predictions take from a GPU. Rates of products and attention are those that the best kernels of their kind were
// measured to have, with causal FLOPs for attention.
struct Machine {
  std::string name;
  double bytes_per_second = 0;  // of memory
  double flops_per_second = 0;  // dense bf16 products, published
  double processors = 0;        // multiprocessors
  double deep_products = 0;     // FLOP/s of large products of the vendor's library
  double shallow_products = 0;  // FLOP/s of those whose sums have kShallow terms
  double odd_fraction = 0;      // of a product's rate, where a leading dimension is odd
  double attention = 0;         // FLOP/s of the forward pass, heads of 64, 1024 tokens
  double attention_grad = 0;    // FLOP/s of the backward pass
  double copy_fraction = 0;     // of bytes_per_second, with enough loads in flight
  double latency = 0;           // seconds until a load from memory returns
  double launch = 0;            // seconds that a launch in a graph adds

  static constexpr double kShallow = 768;
  // Returns the FLOP/s of a product whose sums have `depth` terms: as if every product took the time of a fixed number
  // of further terms, which follows from the two rates above.
  double product_rate(double depth) const;
  std::vector<Assumption> assumptions() const;
};

// Returns the machine of that name. Throws UserError with the known names if there is none.
Machine machine_named(const std::string& name);

// A speed that was measured with another program.
struct Peer {
  std::string name;
  double tokens_per_second = 0;  // of a GPU
  std::string source;
};

// A GPT-2, the samples of a step on one GPU, and how fast others train it.
struct PredictedModel {
  std::string name;
  int64_t channels, layers, heads, batch, parameters;
  std::vector<Peer> peers;
};
std::vector<PredictedModel> predicted_models();

// A kernel's part of a step.
struct PredictedRow {
  std::string name;
  double count = 0;      // runs in a step
  double bytes = 0;      // of a run
  double flops = 0;      // of a run, those of our own algorithm
  double launches = 0;   // of a run
  double in_flight = 0;  // bytes that a multiprocessor asks for at a time; 0: not limited by it
  double seconds = 0;    // of all runs
};

// Returns the kernels of a step (bf16, dropout 0, fused gelu, one micro-batch) with their times, largest first.
// `pad`: with the vocabulary padded, as dstrain does it.
std::vector<PredictedRow> predict(const PredictedModel& model, const Machine& machine,
                                  bool pad = true);

// Returns the tables that `bench_cuda --predict` prints.
std::string prediction_text(const Machine& machine);

}  // namespace dstrain::bench
