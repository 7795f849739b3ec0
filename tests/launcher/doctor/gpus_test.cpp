#include "launcher/doctor/gpus.h"

#include <catch2/catch.hpp>

#include "tests/launcher/doctor/made_up_machine.h"

namespace dstrain {
namespace {

TEST_CASE("kernels run on GPUs of their generation as binaries, and on later ones as PTX") {
  const auto [architectures, capability, runs] =
      GENERATE(table<std::string, int, std::optional<bool>>({
          {"80-real,90", 80, true},
          {"80-real,90", 86, true},
          {"80-real,90", 75, false},
          {"80-real,90", 89, true},
          {"80-real,90", 90, true},
          {"80-real,90", 120, true},
          {"80-real", 90, false},
          {"86-real", 80, false},
          {"80-virtual", 120, true},
          {"90a", 90, true},
          {"90a", 100, false},
          {"90a-real,80", 100, true},
          {"100f", 103, true},
          {"100f", 120, false},
          {"native", 90, std::nullopt},
          {"80;90", 90, std::nullopt},
          {"", 90, std::nullopt},
      }));
  CAPTURE(architectures, capability);
  CHECK(kernels_run_on(architectures, capability) == runs);
}

GpuFacts made_up_gpu(std::vector<int> peers) {
  return {.name = "GPU Z",
          .memory = {.total = 80'000'000'000, .free = 79'000'000'000},
          .capability = 90,
          .peers = std::move(peers)};
}

GpuReport made_up_report() {
  return {.built = true,
          .nccl = true,
          .driver = "550.54.15",
          .cuda = {.architectures = "80-real,90",
                   .runtime = 12040,
                   .driver = 12080,
                   .gpus = {made_up_gpu({1}), made_up_gpu({0})}}};
}

TEST_CASE("GPUs are told with their driver, memory, capability and links") {
  const MachineLines lines = gpu_lines(made_up_report(), 2, DeviceChoice::automatic);
  REQUIRE(lines.size() == 4);
  CHECK(count_of(lines, Health::ok) == 4);
  CHECK(lines[0].text ==
        "2 GPUs; driver 550.54.15, which has CUDA up to 12.8; this program has 12.4");
  CHECK(lines[2].subject == "GPU 1");
  CHECK(lines[2].text == "GPU Z, 79.0 GB free of 80.0 GB, compute capability 9.0");
  CHECK(lines[2].values["peers"] == nlohmann::ordered_json{0});
  CHECK(lines[3].text ==
        "each GPU reaches the memory of every other one directly, atomic operations included, as "
        "over NVLink");
}

TEST_CASE("a GPU that the kernels do not run on is a problem, one that others use a note") {
  GpuReport report = made_up_report();
  report.cuda.gpus[0].capability = 75;
  report.cuda.gpus[1].memory.free = 70'000'000'000;
  const MachineLines lines = gpu_lines(report, 2, DeviceChoice::automatic);
  const MachineLine old = line_with(lines, "GPU 0", Health::problem);
  CHECK(old.text.ends_with("this program's kernels, for 80-real,90, do not run on it"));
  CHECK(old.remedy == "build dstrain with -DCMAKE_CUDA_ARCHITECTURES=75");
  CHECK_FALSE(line_with(lines, "GPU 1", Health::note).remedy.empty());
  report.cuda.architectures = "native";
  CHECK(gpu_lines(report, 2, DeviceChoice::automatic)[1].health == Health::ok);
}

TEST_CASE("ranks that share GPUs, far GPUs and a build without NCCL are notes") {
  GpuReport report = made_up_report();
  CHECK(line_with(gpu_lines(report, 3, DeviceChoice::automatic), "GPUs", Health::note)
            .remedy.starts_with("3 ranks share them"));
  CHECK(gpu_lines(report, 3, DeviceChoice::cpu)[0].health == Health::ok);
  report.cuda.gpus[0].atomic_links = false;
  CHECK(gpu_lines(report, 2, DeviceChoice::automatic)[3].text ==
        "each GPU reaches the memory of every other one directly");
  report.cuda.gpus[0].peers.clear();
  const MachineLine far =
      line_with(gpu_lines(report, 2, DeviceChoice::automatic), "GPU links", Health::note);
  CHECK(far.text == "1 of 2 GPUs do not reach the memory of every other one directly");
  report.nccl = false;
  CHECK(line_with(gpu_lines(report, 2, DeviceChoice::automatic), "GPU links", Health::note)
            .text.ends_with("is built without NCCL: tensors pass through the host's memory"));
  report.cuda.gpus.pop_back();
  CHECK(gpu_lines(report, 1, DeviceChoice::automatic).size() == 2);  // one GPU has no links
}

TEST_CASE("no GPU is well where there is no driver, unless the run asks for one") {
  GpuReport report{.why_none = "this dstrain was built without CUDA; build it"};
  const auto line = [&report](DeviceChoice device) {
    const MachineLines lines = gpu_lines(report, 1, device);
    REQUIRE(lines.size() == 1);
    return lines[0];
  };
  CHECK(line(DeviceChoice::automatic).health == Health::ok);
  CHECK(
      line(DeviceChoice::automatic).text ==
      "none that a run can use, and no driver of NVIDIA's is loaded: runs compute on the CPU, and "
      "this program is built without CUDA");
  CHECK(line(DeviceChoice::cuda).health == Health::problem);
  CHECK(line(DeviceChoice::cuda).remedy == report.why_none);
  report.driver = "550.54.15";
  CHECK(line(DeviceChoice::automatic).health == Health::note);
  CHECK(line(DeviceChoice::automatic).text ==
        "none that a run can use, though the driver 550.54.15 is loaded");
  CHECK(line(DeviceChoice::automatic).remedy == report.why_none);
}

TEST_CASE("the driver is the one that the kernel has loaded") {
  const MadeUpMachine machine;
  CHECK(gpu_report(machine.root()).driver.empty());
  machine.file("proc/driver/nvidia/version",
               "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56\n"
               "GCC version:  gcc version 12.2.0\n");
  const GpuReport report = gpu_report(machine.root());
  CHECK(report.driver == "550.54.15");
  CHECK(report.why_none.empty() == !report.cuda.gpus.empty());
  CHECK(report.why_none.find("--device cuda: ") == std::string::npos);
  machine.file("proc/driver/nvidia/version", "something else\n");
  CHECK(gpu_report(machine.root()).driver == "something else");
}

}  // namespace
}  // namespace dstrain
