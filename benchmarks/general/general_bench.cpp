// Times the general ops on processors, each in turn with a loop that moves as many bytes, or with a product of as many
// FLOPs. Prints the median of the ratios of their times with the lowest and the highest.
//
//   general_bench [--threads N] [--rounds N] [--only PART-OF-A-LINE] [--json]
#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "benchmarks/general/cases.h"
#include "benchmarks/kernels/timing.h"
#include "benchmarks/kernels/traffic.h"
#include "kernels/cpu/cpu_library.h"
#include "kernels/cpu/memory_bound/init_weights.h"
#include "runtime/core/isa/isa.h"
#include "runtime/core/memory.h"
#include "runtime/core/philox.h"
#include "runtime/core/threads/parts.h"

namespace dstrain::bench {
namespace {

struct Options {
  int threads = 2, rounds = 21;
  std::string only{};
  bool json = false;
};

// A kernel with operands of its own, which have random values.
class Bench {
 public:
  Bench(const KernelLibrary& library, const KernelSpec& spec, int64_t indices)
      : kernel_(library.make(spec)) {
    for (const TensorSpec& in : spec.in) reads_.push_back(place(in, indices, spec.threads));
    for (const TensorSpec& out : spec.out) writes_.push_back(place(out, indices, spec.threads));
    memory_.push_back(Memory::anonymous(library.workspace_bytes(spec) + 64, "workspace"));
    call_.in = reads_;
    call_.out = writes_;
    call_.state = &state_;
    call_.workspace = {memory_.back().data(), Shape{memory_.back().bytes()}, DType::u8};
  }
  void run() const { kernel_->run(call_); }

 private:
  Tensor place(const TensorSpec& spec, int64_t indices, int threads) {
    const int64_t n = spec.shape.elements();
    if (n == 0) return {};
    memory_.push_back(Memory::anonymous(n * size_of(spec.dtype) + 64, "benchmark"));
    const Tensor t{memory_.back().data(), spec.shape, spec.dtype};
    if (t.dtype == DType::f32) {
      fill_uniform(t.as<float>(), 0, n, 0.5f, {1, 2}, threads);
    } else if (t.dtype == DType::i32) {
      for (int64_t i = 0; i < n; ++i)
        t.as<int32_t>()[i] =
            static_cast<int32_t>(mix64(static_cast<uint64_t>(i)) % static_cast<uint64_t>(indices));
    } else {
      std::vector<float> x(static_cast<size_t>(n));
      fill_uniform(x.data(), 0, n, 0.5f, {1, 2}, threads);
      std::ranges::transform(x, t.as<bf16>(), to_bf16);
    }
    return t;
  }

  std::unique_ptr<Kernel> kernel_;
  std::vector<Memory> memory_;
  std::vector<Tensor> reads_, writes_;
  StepState state_;
  KernelCall call_;
};

Memory filled(int64_t bytes) {
  Memory memory = Memory::anonymous(std::max<int64_t>(64, bytes), "traffic");
  std::memset(memory.data(), 1, static_cast<size_t>(memory.bytes()));
  return memory;
}

int64_t bytes_of(const std::vector<TensorSpec>& operands) {
  int64_t bytes = 0;
  for (const TensorSpec& of : operands) bytes += of.shape.elements() * size_of(of.dtype);
  return bytes;
}

struct Result {
  Timing timing;
  double rate;  // GB/s or GFLOP/s
};

Result time_beside_copy(const Bench& bench, const GeneralCase& c, const Options& options) {
  const Traffic traffic{bytes_of(c.in) - c.unread, bytes_of(c.out), 0};
  const Memory from = filled(traffic.read), to = filled(traffic.written), changed = filled(0);
  Timing timing = compare(
      [&] { bench.run(); },
      [&] { flat_traffic(traffic, from.data(), to.data(), changed.data(), options.threads); },
      options.rounds, options.threads);
  const double rate = 1e-9 * static_cast<double>(traffic.bytes()) / timing.kernel;
  return {std::move(timing), rate};
}

Result time_beside_product(const KernelLibrary& library, const Bench& bench,
                           const ProductSizes& product, DType dtype, const Options& options) {
  const std::vector<TensorSpec> in{
      {{product.rows, product.in}, dtype}, {{product.out, product.in}, dtype}, {}},
      out{{{product.rows, product.out}, dtype}};
  const Bench linear(library, {OpKind::linear, {}, in, out, options.threads}, 0);
  Timing timing =
      compare([&] { bench.run(); }, [&] { linear.run(); }, options.rounds, options.threads);
  const double flops = 2.0 * static_cast<double>(product.rows) * static_cast<double>(product.in) *
                       static_cast<double>(product.out);
  const double rate = 1e-9 * flops / timing.kernel;
  return {std::move(timing), rate};
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

void run(const Options& options) {
  const std::unique_ptr<KernelLibrary> library = make_cpu_library();
  set_thread_count(options.threads);
  nlohmann::json all{{"processor", processor()},
                     {"kernels", library->description()},
                     {"threads", options.threads},
                     {"rounds", options.rounds},
                     {"cases", nlohmann::json::array()}};
  if (!options.json)
    fmt::print(
        "{}, {}, {} threads; the time of a copy of as many bytes, or of a product of as "
        "many FLOPs, over ours: the median of {}\n",
        processor(), library->description(), options.threads, options.rounds);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const GeneralCase& c : general_cases(dtype)) {
      const std::string label = fmt::format("{}: {}, {}", name_of(c.op), c.name, name_of(dtype));
      if (label.find(options.only) == std::string::npos) continue;
      const KernelSpec spec{c.op, c.attrs, c.in, c.out, options.threads};
      const Bench bench(*library, spec, c.indices);
      const Result result = c.product
                                ? time_beside_product(*library, bench, *c.product, dtype, options)
                                : time_beside_copy(bench, c, options);
      const auto [least, most] = std::ranges::minmax(result.timing.ratios);
      if (!options.json)
        fmt::print("{:<60}{:9.3f} ms {:8.1f} {:<8}{}\n", label, result.timing.kernel * 1e3,
                   result.rate, c.product ? "GFLOP/s" : "GB/s", spread(result.timing.ratios));
      all["cases"].push_back({{"op", name_of(c.op)},
                              {"case", c.name},
                              {"dtype", name_of(dtype)},
                              {"ms", result.timing.kernel * 1e3},
                              {c.product ? "gflops" : "gb_per_s", result.rate},
                              {"ratio", median(result.timing.ratios)},
                              {"low", least},
                              {"high", most}});
    }
  if (options.json) fmt::print("{}\n", all.dump(1));
}

// Returns the options. Throws if they are none.
Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") {
      options.json = true;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(name);
    const std::string value = argv[++i];
    if (name == "--only") {
      options.only = value;
      continue;
    }
    int* const number = name == "--threads"  ? &options.threads
                        : name == "--rounds" ? &options.rounds
                                             : nullptr;
    const char* const end = value.data() + value.size();
    if (!number || std::from_chars(value.data(), end, *number).ptr != end || *number < 1)
      throw std::invalid_argument(name);
  }
  return options;
}

}  // namespace
}  // namespace dstrain::bench

int main(int argc, char** argv) {
  try {
    dstrain::bench::run(dstrain::bench::options_of(argc, argv));
  } catch (const std::invalid_argument& argument) {
    fmt::print(stderr,
               "general_bench: {} is no option, or has no value\nusage: general_bench [--threads "
               "N] [--rounds N] [--only PART-OF-A-LINE] [--json]\n",
               argument.what());
    return 1;
  }
  return 0;
}
