// Whole runs with tensors on disk whose drives fail: one error, all ranks down, nothing of the user's touched.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "tests/launcher/support/run_folder.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Everything that can be on disk, on two ranks.
const std::string kOnDisk =
    "--num_gpus 2 --set zero_optimization.stage=3 "
    "--set zero_optimization.stage3_max_reuse_distance=0 --set dstrain.model.n_layer=3 "
    "--set dstrain.model.n_embd=32 --set zero_optimization.stage3_param_persistence_threshold=0 "
    "--set zero_optimization.offload_optimizer.device=nvme "
    "--set zero_optimization.offload_optimizer.nvme_path=drive "
    "--set zero_optimization.offload_param.device=nvme "
    "--set zero_optimization.offload_param.nvme_path=drive "
    "--set zero_optimization.offload_param.max_in_cpu=0 --set dstrain.recompute=1 "
    "--set dstrain.offload.activations=nvme ";

Environment failing(const std::string& fault) {
  return {{"LD_PRELOAD", DSTRAIN_FAILING_DRIVE},
          {"DRIVE_FAULT", fault},
          {"ASAN_OPTIONS", "detect_leaks=0:verify_asan_link_order=0"}};
}

// A directory for the tensors in which the user has a file.
void make_drive(const RunFolder& folder) {
  fs::create_directory(folder.root / "drive");
  folder.write("drive/mine", "mine");
}

// Whether the drive holds what it held before, and nobody is left. A process that was killed is there until its requests to a
// slow drive have ended.
void check_untouched(const RunFolder& folder) {
  CHECK(wait_until([&] { return folder.nothing_left(); }));
  CHECK(folder.read("drive/mine") == "mine");
  CHECK(std::distance(fs::directory_iterator(folder.root / "drive"), fs::directory_iterator()) ==
        1);
}

}  // namespace

TEST_CASE("a drive that fails during a run ends it with one error that names file and offset") {
  for (const auto& [fault, reason] :
       {std::pair{"eio", "Input/output error"}, {"enospc", "No space left on device"}}) {
    const RunFolder folder;
    make_drive(folder);
    RunningProgram run = folder.train(kOnDisk + "--steps 100000", failing(fault));
    CHECK(run.wait() == 2);
    CAPTURE(run.text());
    const std::string error = only_error(run.text());
    CHECK(error.find(reason) != std::string::npos);
    CHECK(error.find("at offset") != std::string::npos);
    CHECK(error.find("the swap file in drive") != std::string::npos);
    check_untouched(folder);
  }
}

TEST_CASE("a drive that is too small, or has no room left, is refused before the first step") {
  for (const auto& [fault, status, reason] :
       {std::tuple{"small", 1, "are free in drive"}, {"full", 2, "cannot reserve"}}) {
    const RunFolder folder;
    make_drive(folder);
    RunningProgram run = folder.train(kOnDisk, failing(fault));
    CHECK(run.wait() == status);
    CAPTURE(run.text());
    CHECK(only_error(run.text()).find(reason) != std::string::npos);
    CHECK_FALSE(run.wrote("step=1"));
    check_untouched(folder);
  }
}

TEST_CASE("a quota that is used up is a full disk: old checkpoints go first, or one is left out") {
  const std::string ranks = GENERATE("1", "2");
  const RunFolder folder;
  const std::string save = "--steps 4 --save_interval 1 --num_gpus " + ranks;
  RunningProgram removes = folder.train(save + " --set dstrain.keep_last=2", failing("quota"));
  CHECK(removes.wait() == 0);
  CAPTURE(removes.text());
  CHECK_FALSE(removes.wrote("left out"));
  for (const std::string step : {"step_3", "step_4"})
    CHECK(fs::exists(folder.root / "out/checkpoints" / step));
  RunningProgram keeps = folder.train(save + " --overwrite", failing("quota"));
  CHECK(keeps.wait() == 0);
  CHECK(keeps.wrote("warning: the checkpoint of step 3, of "));
  CHECK(keeps.wrote("Disk quota exceeded; the disk quota is used up: free some of it"));
}

TEST_CASE("weights that cannot be written are in the checkpoint, from which --resume writes them") {
  const std::string options =
      std::string("--set dstrain.save_last=true --set zero_optimization.stage=3 --num_gpus ") +
      GENERATE("1", "2 --set pipeline.stages=2");
  const RunFolder folder;
  RunningProgram full = folder.train(options, failing("weights"));
  CHECK(full.wait() == 2);
  CAPTURE(full.text());
  CHECK(only_error(full.text()).find("model.safetensors") != std::string::npos);
  CHECK(full.wrote(
      "the weights of step 4 are in its checkpoint alone: once there is room, --resume " +
      folder.path("out") + " writes model.safetensors"));
  CHECK(fs::exists(folder.root / "out/checkpoints/step_4/manifest.json"));
  CHECK_FALSE(fs::exists(folder.root / "out/model.safetensors.tmp"));
  CHECK(folder.train(options + " --resume out").wait() == 0);
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
}

TEST_CASE("a killed run leaves nothing on the drive") {
  const RunFolder folder;
  make_drive(folder);
  RunningProgram run = folder.train(kOnDisk + "--steps 100000");
  REQUIRE(wait_until([&] { return run.wrote("step=1"); }));
  for (const pid_t pid : processes_with(folder.token())) ::kill(pid, SIGKILL);
  CHECK(run.wait() != 0);
  check_untouched(folder);
}

TEST_CASE("requests that end early are continued: the weights are those of the other run") {
  const RunFolder folder;
  make_drive(folder);
  REQUIRE(folder.train(kOnDisk).wait() == 0);
  const std::string expected = folder.read("out/model.safetensors");
  REQUIRE(!expected.empty());
  RunningProgram run = folder.train(kOnDisk + "--overwrite", failing("short"));
  CHECK(run.wait() == 0);
  CAPTURE(run.text());
  CHECK(folder.read("out/model.safetensors") == expected);
  check_untouched(folder);
}

TEST_CASE("a file that is truncated behind the run's back ends it") {
  const RunFolder folder;
  make_drive(folder);
  RunningProgram run = folder.train(kOnDisk + "--steps 100000");
  REQUIRE(wait_until([&] { return run.wrote("step=1"); }));
  // Both are opened before the first is truncated: the run that finds one too short ends, and its files with it.
  std::vector<int> swap_files;  // without names
  std::error_code closed;
  for (const pid_t pid : processes_with(folder.token()))
    for (const auto& file :
         fs::directory_iterator(fs::path("/proc") / std::to_string(pid) / "fd", closed))
      if (fs::read_symlink(file.path(), closed).string().starts_with(folder.path("drive/")))
        swap_files.push_back(::open(file.path().c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(swap_files.size() == 2);
  for (const int file : swap_files) {
    CHECK(::ftruncate(file, 4096) == 0);
    ::close(file);
  }
  CHECK(run.wait() == 2);
  CAPTURE(run.text());
  CHECK(only_error(run.text()).find("the swap file in drive") != std::string::npos);
  check_untouched(folder);
}

}  // namespace dstrain
