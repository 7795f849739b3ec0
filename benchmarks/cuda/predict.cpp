#include "benchmarks/cuda/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <sstream>

#include "benchmarks/cuda/cases.h"
#include "runtime/core/error.h"

namespace dstrain::bench {
namespace {

constexpr int64_t kVocabulary = 50257, kPadded = 50304, kSequence = 1024;
// Assumed for sum_squares, whose source states nothing: eight loads of 4 bytes.
constexpr Occupancy kSquares{64, 2};
// Ranges of parameters that one launch of adam updates (kernels/cuda/memory_bound/optimizers/adam.cu).
constexpr double kAdamRanges = 60;
// The columns up to which one kernel, with a warp for a row, makes all gradients of a layer norm.
constexpr int64_t kJoinedColumns = 768;

// What the source of a kernel states: a file of kernels/cuda/memory_bound.
Occupancy stated(const std::string& file, const std::string& kernel) {
  const std::string path = fmt::format("{}/kernels/cuda/memory_bound/{}", DSTRAIN_SOURCE_DIR, file);
  std::ifstream in(path);
  if (!in) fail_run("a prediction reads what kernels state in their sources; cannot read {}", path);
  std::ostringstream text;
  text << in.rdbuf();
  return occupancy_in(text.str(), kernel);
}

class Step {
 public:
  // `vocabulary`: columns of the logits in memory.
  Step(const PredictedModel& model, const Machine& machine, int64_t vocabulary)
      : model_(model), machine_(machine), vocabulary_(vocabulary) {
    const Width width{model.channels, model.heads, model.batch};
    Shapes shapes{.vocabularies = {vocabulary}, .widths = {width}, .heads = {width}};
    shapes.parameters = model.parameters;
    for (const Case& c : cases_of(shapes)) floors_[c.name] = c.floor;
  }

  std::vector<PredictedRow> rows() {
    const int64_t c = model_.channels;
    const auto n = static_cast<double>(model_.layers);
    const std::string at = fmt::format(" C={}", c);
    const Occupancy sums = stated("norms/column_sums.cu", "sum_block");
    memory("layer_norm" + at, 2 * n + 1, 1, stated("norms/layer_norm.cu", "layer_norm_kernel"));
    if (c <= kJoinedColumns) {
      memory("layer_norm_grad" + at, 2 * n + 1, 2,
             stated("norms/layer_norm_grad.cu", "all_grads_kernel"));
    } else {
      memory("layer_norm_input_grad" + at, 2 * n + 1, 1,
             stated("norms/layer_norm_grad.cu", "input_grad_kernel"));
      memory("layer_norm_weight_grad" + at, 2 * n + 1, 2, sums);
    }
    // sum_rows at C=... has 4 C columns; the biases of a layer have 9 C.
    memory("sum_rows" + at, 9.0 / 4 * n, 2, sums);
    products(c, 3 * c, n);
    products(c, 3 * c, n / 3);  // the projection has C columns
    products(c, 4 * c, n);
    products(4 * c, c, n);
    products(c, vocabulary_, 1);
    residuals(c, 2 * n);
    attention(n);
    const std::string v = fmt::format(" V={}", vocabulary_);
    memory("cross_entropy" + v, 1, 2, stated("cross_entropy.cu", "cross_entropy_kernel"));
    memory("embed" + v, 1, 1, stated("embed.cu", "embed_kernel"));
    memory("embed_token_grad" + v, 1, 9, stated("token_grad.cu", "add_rows"));
    memory("embed_position_grad", 1, 1, stated("embed.cu", "position_grad_kernel"));
    memory("sum_squares f32", 1, 2 * (n + 2), kSquares);
    memory("adam f32 and bf16 copy", 1, std::ceil((n + 2) / kAdamRanges),
           stated("optimizers/adam.cu", "adam_kernel"));
    std::stable_sort(rows_.begin(), rows_.end(), [](const PredictedRow& a, const PredictedRow& b) {
      return a.seconds > b.seconds;
    });
    return std::move(rows_);
  }

 private:
  const Floor& floor(const std::string& name) const {
    const auto found = floors_.find(name);
    check(found != floors_.end(), "no case '{}' to predict", name);
    return found->second;
  }

  void add(const std::string& name, double count, double launches, const Floor& work,
           double in_flight, double seconds) {
    rows_.push_back({name, count, work.bytes, work.flops, launches, in_flight,
                     count * (seconds + launches * machine_.launch)});
  }

  // A multiprocessor gets at most what it asks for within the latency of memory.
  void memory(const std::string& name, double count, double launches, const Occupancy& occupancy) {
    const double asked = machine_.processors * occupancy.bytes() / machine_.latency;
    const double rate = std::min(machine_.copy_fraction * machine_.bytes_per_second, asked);
    add(name, count, launches, floor(name), occupancy.bytes(), floor(name).bytes / rate);
  }

  void products(int64_t k, int64_t n, double count) {
    const double odd = n % 8 == 0 ? 1 : machine_.odd_fraction;
    const auto rows = static_cast<double>(model_.batch * kSequence);
    const std::pair<const char*, double> kinds[] = {{"linear", static_cast<double>(k)},
                                                    {"linear_input_grad", static_cast<double>(n)},
                                                    {"linear_weight_grad", rows}};
    for (const auto& [kind, depth] : kinds) {
      const std::string name = fmt::format("{} K={} N={}", kind, k, n);
      const Floor& work = floor(name);
      const double seconds =
          std::max(work.flops / (odd * machine_.product_rate(depth)),
                   work.bytes / (machine_.copy_fraction * machine_.bytes_per_second));
      add(name, count, 1, work, 0, seconds);
    }
  }

  // What products take longer for a residual that they read: as if nothing hid it.
  void residuals(int64_t c, double count) {
    const double bytes = 2 * static_cast<double>(model_.batch * kSequence * c);
    add(fmt::format("residuals of linear C={}", c), count, 0, {bytes, 0}, 0,
        bytes / (machine_.copy_fraction * machine_.bytes_per_second));
  }

  // The backward pass recomputes the scores; its rate counts FLOPs that no implementation can avoid.
  void attention(double count) {
    const std::string at =
        fmt::format(" C={} D={}", model_.channels, model_.channels / model_.heads);
    const Floor &forward = floor("attention" + at), &backward = floor("attention_grad" + at);
    add("attention" + at, count, 1, forward, 0, forward.flops / machine_.attention);
    add("attention_grad" + at, count, 3, backward, 0, backward.flops / machine_.attention_grad);
  }

  const PredictedModel& model_;
  const Machine& machine_;
  int64_t vocabulary_;
  std::map<std::string, Floor> floors_;
  std::vector<PredictedRow> rows_;
};

}  // namespace

Occupancy occupancy_in(const std::string& source, const std::string& kernel) {
  const std::regex claim(R"(^\s*// SASS.*: threads (\d+), blocks (\d+).*, loads (\d+)\s*$)");
  const std::regex head("\\b" + kernel + "\\(");
  std::optional<Occupancy> open;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, claim))
      open = {std::stod(found[1]) * std::stod(found[2]) / 32, std::stod(found[3])};
    else if (open && std::regex_search(line, head))
      return *open;
    else if (line == "}")
      open.reset();
  }
  fail_run("no line `// SASS` with threads, blocks and loads is above {}", kernel);
}

double Machine::product_rate(double depth) const {
  const double further = kShallow * (deep_products / shallow_products - 1);
  return deep_products * depth / (depth + further);
}

std::vector<Assumption> Machine::assumptions() const {
  const std::string plot =
      "FlashAttention-2 on an H100, causal, T=1024, D=64 (-3: 265, cuDNN: 288): flash-attention";
  return {{"memory", bytes_per_second * 1e-12, "TB/s", "data sheet"},
          {"bf16 products, dense", flops_per_second * 1e-12, "TFLOP/s", "data sheet"},
          {"multiprocessors", processors, "", "data sheet"},
          {"large products", deep_products * 1e-12, "TFLOP/s",
           "best bf16 product on an H100: stas00/ml-engineering"},
          {"products of depth 768", shallow_products * 1e-12, "TFLOP/s",
           "guessed: middle of 580 to 650; no published measurement of this depth is known"},
          {"the same, odd dimensions", odd_fraction, "of the rate", "guessed"},
          {"attention", attention * 1e-12, "TFLOP/s", plot},
          {"attention_grad", attention_grad * 1e-12, "TFLOP/s",
           "of forward (229) and both passes (192), the same plots"},
          {"memory-bound kernels", copy_fraction, "of memory",
           "lowest of 0.86 to 0.92, Triton's vector addition on an H200: XAheli"},
          {"loads of sum_squares", kSquares.loads, "", "guessed; other kernels state theirs"},
          {"latency of memory", latency * 1e9, "ns", "guessed"},
          {"launch in a graph", launch * 1e6, "us", "guessed"}};
}

Machine machine_named(const std::string& name) {
  Machine machine{.name = name,
                  .bytes_per_second = 4.8e12,
                  .flops_per_second = 989.4e12,
                  .processors = 132,
                  .deep_products = 794.5e12,
                  .shallow_products = 615e12,
                  .odd_fraction = 0.35,
                  .attention = 229e12,
                  .attention_grad = 180e12,
                  .copy_fraction = 0.86,
                  .latency = 800e-9,
                  .launch = 2e-6};
  if (name == "H200") return machine;
  if (name == "H100") {
    machine.bytes_per_second = 3.35e12;
    return machine;
  }
  fail_user("--predict: no machine is called '{}'; there are H100 and H200", name);
}

std::vector<PredictedModel> predicted_models() {
  return {{"GPT-2 124M",
           768,
           12,
           12,
           32,
           124439808,
           {{"llm.c, 8 H100", 468e3, "derived from 140 ms for 524288 tokens: modded-nanogpt"}}},
          {"GPT-2 1.5B",
           1600,
           48,
           25,
           16,
           1557611200,
           {{"llm.c, 8 H100", 46.8e3, "the lowest of 46.8 to 48.5 thousand, derived: llm.c"},
            {"nanoGPT compiled, 1 H200", 49.9e3, "21 s for 16 x 1024 x 64 tokens: lzwjava"}}}};
}

std::vector<PredictedRow> predict(const PredictedModel& model, const Machine& machine, bool pad) {
  return Step(model, machine, pad ? kPadded : kVocabulary).rows();
}

std::string prediction_text(const Machine& machine) {
  std::string text = fmt::format(
      "predicted for {} from what others measured; nothing of it was measured with dstrain. "
      "Assumptions:\n",
      machine.name);
  for (const Assumption& a : machine.assumptions())
    text += fmt::format("  {:<26} {:>8g} {:<12} {}\n", a.name, a.value, a.unit, a.source);
  for (const PredictedModel& model : predicted_models()) {
    text += fmt::format(
        "\n{}, B={}, T={}, bf16, vocabulary {}, padded to {}\n{:<36} {:>6} {:>9} {:>9} {:>9} {:>9} "
        "{:>8} {:>8} {:>8}\n",
        model.name, model.batch, kSequence, kVocabulary, kPadded, "", "runs", "us", "MB", "GFLOP",
        "launches", "KB/SM", "TFLOP/s", "ms");
    double total = 0, launches = 0, flops = 0;
    for (const PredictedRow& row : predict(model, machine)) {
      const double once = row.seconds / row.count;
      text += fmt::format(
          "{:<36} {:>6.4g} {:>9.1f} {:>9.1f} {:>9.1f} {:>9g} {:>8.0f} {:>8.0f} {:>8.3f}\n",
          row.name, row.count, once * 1e6, row.bytes * 1e-6, row.flops * 1e-9, row.launches,
          row.in_flight / 1024, row.flops / once * 1e-12, row.seconds * 1e3);
      total += row.seconds;
      launches += row.count * row.launches;
      flops += row.count * row.flops;
    }
    const double tokens = static_cast<double>(model.batch * kSequence);
    double odd = 0;
    for (const PredictedRow& row : predict(model, machine, false)) odd += row.seconds;
    const auto line = [&](const std::string& name, double rate, const std::string& more) {
      text += fmt::format("{:<36} {:>9.0f} tokens/s  {}\n", name, rate, more);
    };
    line("step, predicted", tokens / total,
         fmt::format("{:.2f} ms, {:.0f} launches, {:.1f} % of the data sheet's products",
                     total * 1e3, launches, 100 * flops / total / machine.flops_per_second));
    line("step, vocabulary not padded", tokens / odd, fmt::format("{:.2f} ms", odd * 1e3));
    for (const Peer& peer : model.peers)
      line("measured: " + peer.name, peer.tokens_per_second, peer.source);
  }
  return text;
}

}  // namespace dstrain::bench
