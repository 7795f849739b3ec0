#include "launcher/doctor/gpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

#include "runtime/comm/devices/nccl_comm.h"
#include "runtime/config/text.h"
#include "runtime/core/devices/cuda_device.h"

namespace dstrain {
namespace {

constexpr double kMostlyFree = 0.9;  // of a GPU that nobody else uses

// Returns the version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  ...", else the whole line; empty
// without a driver.
std::string loaded_driver(const std::filesystem::path& root) {
  std::ifstream in(root / "proc/driver/nvidia/version");
  std::string line;
  std::getline(in, line);
  std::istringstream words(line);
  for (std::string word; words >> word;)
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos)
      return word;
  return line;
}

// Returns the reason without the option that asked for a GPU: "--device cuda: this machine has ...".
std::string reason_without_option(const std::string& why) {
  constexpr std::string_view option = "--device cuda: ";
  return why.starts_with(option) ? why.substr(option.size()) : why;
}

std::string tenths(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

std::string cuda_version(int version) {
  constexpr int major = 1000, minor = 10;
  return fmt::format("{}.{}", version / major, version % major / minor);
}

MachineLine no_gpu_line(const GpuReport& report, DeviceChoice device) {
  MachineLine line{.subject = "GPUs", .values = {{"count", 0}, {"driver", report.driver}}};
  line.text = fmt::format("none that a run can use, {}",
                          report.driver.empty()
                              ? "and no driver of NVIDIA's is loaded"
                              : fmt::format("though the driver {} is loaded", report.driver));
  const bool wanted = is_gpu(device);
  if (report.driver.empty() && !wanted) {
    line.text += report.built ? ": runs compute on the CPU"
                              : ": runs compute on the CPU, and this program is built without CUDA";
    return line;
  }
  line.health = wanted ? Health::problem : Health::note;
  line.remedy = report.why_none;
  return line;
}

MachineLine gpu_line(int number, const GpuFacts& gpu, const std::string& architectures) {
  MachineLine line{.subject = fmt::format("GPU {}", number),
                   .text = fmt::format("{}, {} free of {}, compute capability {}", gpu.name,
                                       size_text(gpu.memory.free), size_text(gpu.memory.total),
                                       tenths(gpu.capability)),
                   .values = {{"name", gpu.name},
                              {"free", gpu.memory.free},
                              {"total", gpu.memory.total},
                              {"capability", tenths(gpu.capability)},
                              {"peers", gpu.peers}}};
  if (!kernels_run_on(architectures, gpu.capability).value_or(true)) {
    line.health = Health::problem;
    line.text += fmt::format(": this program's kernels, for {}, do not run on it", architectures);
    line.remedy = fmt::format("build dstrain with -DCMAKE_CUDA_ARCHITECTURES={}", gpu.capability);
  } else if (static_cast<double>(gpu.memory.free) <
             kMostlyFree * static_cast<double>(gpu.memory.total)) {
    line.health = Health::note;
    line.remedy = "another process has the rest (nvidia-smi names it): a run has what is free";
  }
  return line;
}

// Returns the line about the connections between several GPUs.
MachineLine link_line(const CudaFacts& cuda, bool nccl) {
  const size_t others = cuda.gpus.size() - 1;
  const auto far = std::ranges::count_if(
      cuda.gpus, [others](const GpuFacts& gpu) { return gpu.peers.size() < others; });
  const bool atomic = far == 0 && std::ranges::all_of(cuda.gpus, &GpuFacts::atomic_links);
  MachineLine line{
      .subject = "GPU links",
      .text = far == 0 ? fmt::format("each GPU reaches the memory of every other one directly{}",
                                     atomic ? ", atomic operations included, as over NVLink" : "")
                       : fmt::format("{} of {} do not reach the memory of every other one directly",
                                     far, counted(static_cast<int64_t>(cuda.gpus.size()), "GPU")),
      .values = {{"direct", far == 0}, {"atomic", atomic}, {"nccl", nccl}}};
  if (!nccl) {
    line.health = Health::note;
    line.text += ", and this program is built without NCCL: tensors pass through the host's memory";
    line.remedy = "build dstrain where NCCL is (nccl.h, or pip's package of it)";
  } else if (far != 0) {
    line.health = Health::note;
    line.remedy =
        "what they exchange passes through the host's memory: 'nvidia-smi topo -m' shows "
        "the connections; virtual machines and IOMMUs may hide them";
  }
  return line;
}

}  // namespace

GpuReport gpu_report(const std::filesystem::path& root) {
  GpuReport report{.built = has_cuda_backend(), .nccl = has_nccl(), .driver = loaded_driver(root)};
  report.why_none = reason_without_option(why_no_cuda());
  report.cuda = cuda_facts();
  return report;
}

std::optional<bool> kernels_run_on(std::string_view architectures, int capability) {
  constexpr int generation = 10;
  bool some_run = false;
  for (size_t begin = 0; begin <= architectures.size();) {
    const size_t comma = std::min(architectures.find(',', begin), architectures.size());
    std::string_view word = architectures.substr(begin, comma - begin);
    begin = comma + 1;
    int number = 0;
    const auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (status != std::errc()) return std::nullopt;
    word.remove_prefix(static_cast<size_t>(stop - word.data()));
    // "90a" runs on no other GPUs, "100f" on those of its generation.
    const char letter = word.starts_with('a') || word.starts_with('f') ? word.front() : ' ';
    if (letter != ' ') word.remove_prefix(1);
    if (!word.empty() && word != "-real" && word != "-virtual") return std::nullopt;
    // A binary runs on GPUs of its generation from its own on, PTX on all from its own on.
    const bool binary = word != "-virtual" && number / generation == capability / generation;
    const bool ptx = word != "-real" && letter == ' ';
    some_run = some_run ||
               (letter == 'a' ? number == capability : number <= capability && (binary || ptx));
  }
  return some_run;
}

MachineLines gpu_lines(const GpuReport& report, int ranks, DeviceChoice device) {
  const CudaFacts& cuda = report.cuda;
  if (cuda.gpus.empty()) return {no_gpu_line(report, device)};
  const auto gpus = static_cast<int>(cuda.gpus.size());
  MachineLine all{
      .subject = "GPUs",
      .text = fmt::format("{}; driver {}, which has CUDA up to {}; this program has {}",
                          counted(gpus, "GPU"), report.driver.empty() ? "unknown" : report.driver,
                          cuda_version(cuda.driver), cuda_version(cuda.runtime)),
      .values = {{"count", gpus},
                 {"driver", report.driver},
                 {"driver_cuda", cuda_version(cuda.driver)},
                 {"program_cuda", cuda_version(cuda.runtime)},
                 {"architectures", cuda.architectures}}};
  if (ranks > gpus && device != DeviceChoice::cpu) {
    all.health = Health::note;
    all.remedy = fmt::format(
        "{} share them: tensors then pass through the host's memory instead of NCCL; --num_gpus {} "
        "gives each a GPU",
        counted(ranks, "rank"), gpus);
  }
  MachineLines lines{all};
  for (int gpu = 0; gpu < gpus; ++gpu)
    lines.push_back(gpu_line(gpu, cuda.gpus[static_cast<size_t>(gpu)], cuda.architectures));
  if (gpus > 1) lines.push_back(link_line(cuda, report.nccl));
  return lines;
}

}  // namespace dstrain
